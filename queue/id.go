package queue

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/queue/internal/driver"
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

// ids makes IDs: the time in milliseconds, 12 bits of what is left of it, and a number that counts
// on from a random one.
type ids struct {
	mu    sync.Mutex
	last  uint64 // milliseconds and their 4,096ths
	count uint64
	began bool
}

// next makes n of them, in order.
func (g *ids) next(n int) []driver.ID {
	made := make([]driver.ID, n)
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.began {
		var random [8]byte
		_, _ = rand.Read(random[:]) // never fails
		g.count, g.began = binary.BigEndian.Uint64(random[:])&(1<<61-1), true
	}
	now := time.Now()
	g.last = max(g.last, uint64(now.UnixMilli())<<12|uint64(now.Nanosecond()%int(time.Millisecond))<<12/uint64(time.Millisecond))
	for i := range made {
		g.count++
		binary.BigEndian.PutUint64(made[i][:8], g.last>>12<<16|7<<12|g.last&0xfff)
		binary.BigEndian.PutUint64(made[i][8:], 2<<62|g.count&(1<<62-1))
	}
	return made
}
