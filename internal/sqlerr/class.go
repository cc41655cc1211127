// Package sqlerr classifies what database servers report. It holds the table of SQLSTATEs, the
// table of MySQL and MariaDB error numbers, and the one mapping of classes to the errors of package
// dblock. It imports no driver: packages postgres and mysql read the codes out of a driver's
// errors.
package sqlerr

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/ctxerr"
)

// Class says what an error means to the caller of a statement.
type Class int

const (
	Unclassified Class = iota // no class is known.
	Retryable                 // the transaction was rolled back for others' sake: run it again.
	Duplicate                 // the key exists.
	Busy                      // a lock or a connection did not come in time; nothing was written.
	Unavailable               // no connection, or none that may write; nothing was written.
	Unresolved                // the connection broke while the statement may have been running.
	BadInput                  // the values to write are refused; nothing was written.
	NoSchema                  // the tables do not exist.
	Overloaded                // the server can hold no more locks; nothing was written.
	NotPermitted              // the user lacks a privilege; nothing was written.
)

// classNames are the texts of String.
var classNames = [...]string{
	Unclassified: "unclassified", Retryable: "retryable", Duplicate: "duplicate", Busy: "busy", Unavailable: "unavailable",
	Unresolved: "unresolved", BadInput: "bad input", NoSchema: "no schema", Overloaded: "overloaded",
	NotPermitted: "not permitted",
}

// String returns the name of the class in lower case.
func (c Class) String() string {
	if c < 0 || int(c) >= len(classNames) {
		return fmt.Sprintf("class %d", int(c))
	}
	return classNames[c]
}

// MayBeOfOne reports whether one request of a shared statement may have caused an error of the
// class: the server reported it, and nothing was written. For BadInput that is certain.
func (c Class) MayBeOfOne() bool {
	switch c {
	case BadInput, Retryable, Duplicate, Busy, Overloaded, NotPermitted, Unclassified:
		return true
	}
	return false
}

// unwrittenError marks an error that left nothing written.
type unwrittenError struct{ error }

func (e *unwrittenError) Unwrap() error { return e.error }

// Unwritten marks an error that left nothing written: it came before a statement or a commit was
// sent, or from a statement that only reads. It returns nil for nil.
func Unwritten(err error) error {
	if err == nil {
		return nil
	}
	return &unwrittenError{err}
}

// IsUnwritten reports whether Unwritten has marked the error.
func IsUnwritten(err error) bool { return errors.As(err, new(*unwrittenError)) }

// tableLockedError marks an error of a statement that waited for a table.
type tableLockedError struct{ error }

func (e *tableLockedError) Error() string {
	return "another session has locked the table or waits to lock it (ALTER TABLE, LOCK TABLES, FLUSH TABLES): " + e.error.Error()
}

func (e *tableLockedError) Unwrap() error { return e.error }

// TableLocked marks an error of a statement that waited for a table, and not for a row: every other
// request that needs the table would wait, too.
func TableLocked(err error) error { return &tableLockedError{err} }

// IsTableLocked reports whether TableLocked has marked the error.
func IsTableLocked(err error) bool { return errors.As(err, new(*tableLockedError)) }

// NotSent returns the error of a call whose context ended before anything was sent.
func NotSent(ctx context.Context) error {
	return fmt.Errorf("before the server was asked: %w", ctxerr.Of(ctx))
}

// Ended reports whether ctx has ended. A network operation with the deadline of ctx may fail a
// moment before ctx ends: then Ended waits for that moment.
func Ended(ctx context.Context) bool {
	if deadline, has := ctx.Deadline(); has && !time.Now().Before(deadline) {
		<-ctx.Done()
	}
	return ctx.Err() != nil
}
