package member

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"time"
)

// ID names one incarnation of one member: random, never used twice.
type ID [16]byte

// NewID draws one.
func NewID() (id ID) {
	_, _ = rand.Read(id[:]) // never fails
	return id
}

func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Driver executes the statements on a member's row in one database. Each call is one autocommit
// statement.
type Driver interface {
	// Register makes the row, to expire after ttl.
	Register(ctx context.Context, id ID, label string, ttl time.Duration) error

	// Heartbeat moves its end to ttl from now, unless that is past or the row is gone: then alive
	// is false. It returns the number of heartbeats so far.
	Heartbeat(ctx context.Context, id ID, ttl time.Duration) (beat int64, alive bool, err error)

	// Deregister deletes the row: all that it held is free.
	Deregister(ctx context.Context, id ID) error

	// Broken counts the connections that were found broken, at least those of Heartbeat. It does
	// not block.
	Broken() int64
}
