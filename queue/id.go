package queue

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/dblock-go/dblock"
)

// ID names a job: a UUID of version 7, made by the process that enqueues it, before it is sent.
// Those of one process grow.
type ID [16]byte

func (id ID) String() string {
	h := hex.EncodeToString(id[:])
	return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
}

// MarshalText writes it as String does.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads what String wrote.
func (id *ID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseID(string(text))
	return err
}

// ParseID reads what String wrote, with or without the dashes.
func ParseID(s string) (id ID, err error) {
	raw, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	if err != nil || len(raw) != len(id) {
		return id, &dblock.InvalidError{Field: "job id", Reason: fmt.Sprintf("%q is not a UUID", s)}
	}
	return ID(raw), nil
}
