package mysqllock

import (
	"errors"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Retryable reports that the whole transaction should be run again, from its first statement, as
// RunTx does: it gave way to others, or err is dblock.ErrConflict. It looks through errors that
// wrap others. It is true for deadlocks (1213; 3058, after which named locks are to be released
// first) and for a row that has changed (1020, MariaDB with innodb_snapshot_isolation). It is also
// true for what a cluster refuses at COMMIT (1213, 3101, 1180 with error 149), and for all of
// SQLSTATE 40001. To send the one statement again is wrong: most of these have ended the
// transaction, and it would be written by itself.
//
// It is false for a wait that took too long (IsLockTimeout): that bound was yours, and the
// transaction stands. It is false, whatever err wraps, for dblock.ErrFenced and dblock.ErrLost, as
// the lock is gone, and for dblock.ErrOutcomeUnknown, as it may be written.
func Retryable(err error) bool {
	return !sqlerr.IsFinal(err) && (errors.Is(err, dblock.ErrConflict) || mysql.IsConflict(err))
}

// IsLockTimeout reports that a lock was not acquired within innodb_lock_wait_timeout, 50 s by
// default, or within lock_wait_timeout (1205), or at once if NOWAIT asked for that (3572; 1205 on
// MariaDB). It looks through errors that wrap others. Only the statement is rolled back: the
// transaction stands, with its locks, until you end it. If innodb_deadlock_detect is off, deadlocks
// look like this, too.
func IsLockTimeout(err error) bool { return mysql.IsLocked(err) }

// IsDeadlock reports that transactions waited for each other, and this one was chosen to end
// (1213), or sessions for each other's named locks (3058; 1213 on MariaDB). It looks through errors
// that wrap others. All of it is Retryable; it occurs less if all take their locks in the same
// order.
func IsDeadlock(err error) bool { return mysql.IsDeadlock(err) }
