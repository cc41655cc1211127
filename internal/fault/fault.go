// Package fault is what the errors of databases mean to the one who has to go on. Each engine has a package that
// tells: pgfault, mysqlfault.
package fault

import (
	"context"
	"fmt"
	"time"
)

// Fault is what an error means.
type Fault int

const (
	Other       Fault = iota // nothing is known that would help
	Retry                    // rolled back for others' sake: run it again
	Duplicate                // the key is taken
	Busy                     // a lock or a connection did not come in time; nothing was written
	Unreachable              // no connection, or none that may write; nothing was written
	Lost                     // the connection broke when the statement, or the commit, may have been under way
	Poison                   // what was to be written is to blame; nothing was
	NoSchema                 // the tables are not there
	Full                     // the server has no room for more locks; nothing was written
)

// Uncommitted marks an error that left nothing written: it came before a statement, or a commit, was sent, or
// from one that only reads. Whatever it was, the server rolls back.
type Uncommitted struct{ Err error }

func (e *Uncommitted) Error() string { return e.Err.Error() }

func (e *Uncommitted) Unwrap() error { return e.Err }

// NoWrite marks an error that left nothing written. It returns nil for nil.
func NoWrite(err error) error {
	if err == nil {
		return nil
	}
	return &Uncommitted{err}
}

// Unasked says what ended a call before the server was asked.
func Unasked(ctx context.Context) error {
	return fmt.Errorf("before the server was asked: %w", context.Cause(ctx))
}

// Ended tells whether ctx has ended. A network operation that has the deadline of ctx may fail a moment before ctx ends.
func Ended(ctx context.Context) bool {
	if deadline, has := ctx.Deadline(); has && !time.Now().Before(deadline) {
		<-ctx.Done()
	}
	return ctx.Err() != nil
}
