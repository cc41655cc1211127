package session

import (
	"context"

	"github.com/dblock-go/dblock/internal/sqlerr"
)

// ID is the server's name of a lock, as the driver writes it. Keys with the same ID are one lock.
type ID string

// Op is a change or a question about one lock. None of them waits.
type Op uint8

const (
	Take       Op = iota // acquire the lock in exclusive mode; done if it was free
	TakeShared           // acquire it in shared mode; not done while a session announces that it wants it exclusively
	Free                 // release what Take acquired, and notify the sessions that wait
	FreeShared
	Show                // announce that this session waits, so that it is notified and HasWaiters finds it.
	Hide                // take that back.
	Intend              // announce that this session waits for exclusive mode; not done if another session has announced it.
	Forgo               // take that back.
	HasWaiters          // does another session wait for the lock?
	HasExclusiveWaiters // does another session wait for exclusive mode?
	Drop                // release what Take acquired without a notification; works when the server's lock table is full.
	DropShared
)

// Step is an Op on one lock.
type Step struct {
	ID ID
	Op Op
}

// Driver is one server's session locks.
type Driver interface {
	// ID is the server's name of a key. Its error is a *dblock.InvalidError.
	ID(key string) (ID, error)

	// Open opens a connection that the server ends after Options.IdleTimeout of silence. The error
	// matches dblock.ErrUnsupported if session locks don't exclude each other there. Each lock that
	// another session releases is passed to released.
	Open(ctx context.Context, released func(ID)) (Conn, error)

	// Most is how many locks one connection may have.
	MaxLocks() int

	// Classify returns the class of an error.
	Classify(err error) sqlerr.Class

	// Note records which keys the IDs stand for, for operators.
	Note(ctx context.Context, keys map[ID]string) error
}

// Conn is a connection that has locks. One call at a time is under way on it.
type Conn interface {
	// Run executes the steps in one statement or a few, and reports for each if it was done. Steps
	// of one ID are executed in their order. After an error it is unknown which steps were done.
	Run(ctx context.Context, steps []Step) (done []bool, err error)

	// Has reports which of the locks of steps the connection has, in the mode of each step.
	Has(ctx context.Context, steps []Step) ([]bool, error)

	// Ping checks that the server still has this connection.
	Ping(ctx context.Context) error

	// Park waits for unsolicited messages of the server. It returns nil when ctx ends, and an error
	// once the connection is lost. The error matches dblock.ErrUnsupported if the server sends
	// none.
	Park(ctx context.Context) error

	// Wait waits in the server's own queue for a lock, while ctx lives. After an error the
	// connection has to be closed.
	Wait(ctx context.Context, id ID, shared bool) error

	// Closed reports whether the connection has ended.
	Closed() bool

	// Close ends the connection and its locks. It does not wait for long.
	Close()
}
