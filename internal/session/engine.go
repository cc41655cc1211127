package session

import (
	"context"

	"github.com/dblock-go/dblock/internal/sqlerr"
)

// ID is what the server calls a lock by, as the engine writes it. Keys of one ID are one lock.
type ID string

// Op is one thing to be done with a lock. None of them waits.
type Op uint8

const (
	Take       Op = iota // it is to be ours alone; done where it is
	TakeShared           // the same beside others who share it, unless a session says that it wants it alone
	Free                 // give back what Take gave; others who wait are told
	FreeShared
	Show       // say that this session waits for it, so that others are told what they are asked by Look
	Hide       // unsay it
	Intend     // say that this session waits to have it alone; where another has said so already it isn't done, and needn't be
	Forgo      // unsay it
	Look       // does another session wait for it?
	LookForOne // does another session wait to have it alone?
	Drop       // give back what Take gave, and tell nobody: it does not fail where the server is out of room for locks
	DropShared
)

// Step is one thing to be done with one lock.
type Step struct {
	ID ID
	Op Op
}

// Engine is one server's locks.
type Engine interface {
	// ID is what the server calls a key by. Its error is a *dblock.InvalidError.
	ID(key string) (ID, error)

	// Open makes a connection of its own, which the server ends when it has been silent for Options.IdleTimeout. Its error
	// matches dblock.ErrUnsupported where locks of sessions don't exclude; heard is told of locks that were given back.
	Open(ctx context.Context, heard func(ID)) (Conn, error)

	// Most is how many locks one connection may have.
	Most() int

	// Classify tells what an error means.
	Classify(err error) sqlerr.Class

	// Note keeps, for people, which keys the IDs stand for.
	Note(ctx context.Context, keys map[ID]string) error
}

// Conn is a connection that has locks. One call at a time is under way on it.
type Conn interface {
	// Run does the steps in one statement, or a few, and tells of each whether it was done. Those of one ID are done in
	// their order. After an error it is not known which were.
	Run(ctx context.Context, steps []Step) (done []bool, err error)

	// Has tells which of the locks that the steps name, in the way they do, the connection has.
	Has(ctx context.Context, steps []Step) ([]bool, error)

	// Ping makes sure that the server still knows the connection, and that it is the same one.
	Ping(ctx context.Context) error

	// Park waits for what the server says unasked: it returns nil where ctx ended, and an error once the connection is
	// lost. An error that matches dblock.ErrUnsupported says that this server says nothing.
	Park(ctx context.Context) error

	// Wait waits in the server's own line for a lock, while ctx lives. After an error the connection is to be closed.
	Wait(ctx context.Context, id ID, shared bool) error

	// Closed tells whether the connection has ended.
	Closed() bool

	// Close ends it, and with it all its locks. It does not wait for long.
	Close()
}
