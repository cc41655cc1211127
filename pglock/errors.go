package pglock

import (
	"errors"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Retryable reports that the whole transaction should be run again, from its first statement, as
// RunTx does: the server rolled it back for the sake of others (serialization failure 40001,
// deadlock 40P01), or err is dblock.ErrConflict. It looks through errors that wrap others. To send
// the one statement again is of no use: its transaction has failed.
//
// It is false for a wait that took too long (IsLockTimeout): that bound was yours. It is
// false, whatever err wraps, for dblock.ErrFenced and dblock.ErrLost, as the lock is gone, and for
// dblock.ErrOutcomeUnknown, as it may be written.
func Retryable(err error) bool {
	return !sqlerr.IsFinal(err) && (errors.Is(err, dblock.ErrConflict) || postgres.IsConflict(err))
}

// IsLockTimeout reports that a lock was not acquired within lock_timeout, or at once with NOWAIT
// (55P03). It looks through errors that wrap others. The transaction has failed: roll it back, or
// back to a savepoint. A statement_timeout is something else, even if the statement waited for a
// lock.
func IsLockTimeout(err error) bool { return postgres.IsLocked(err) }

// IsDeadlock reports that transactions waited for each other, and this one was chosen to end
// (40P01). It looks through errors that wrap others. All of it is Retryable; it occurs less if
// all take their locks in the same order.
func IsDeadlock(err error) bool { return postgres.IsDeadlock(err) }
