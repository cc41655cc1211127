// Package optimistic updates rows without a lock between the read and the write: a row is read with
// its version, changed, and written only if it still has that version. The second of two writers
// gets an error, and no write is overwritten unseen.
//
//	accounts, err := pgoptimistic.NewTable("account", "id", optimistic.Int("version"))
//	version, err = accounts.Update(ctx, pool, id, version, optimistic.Set{"balance": 110})
//	if errors.Is(err, optimistic.ErrStale) { … }                // read the row again, and decide again
//
// # Contents
//
// From the least to the most that is done for the caller:
//
//   - Rows, One, Result and Tag make a *StaleError of the result of a query that sqlc has
//     generated, or that is written by hand. Diagnose distinguishes a row that has changed from one
//     that is gone.
//   - Update reads, changes and writes a row, again after a conflict. Do repeats anything else.
//     Those of pgoptimistic and mysqloptimistic know their server's errors, see a transaction of
//     the caller's, and take a lock after too many attempts (EscalateAfter, LockRowAfter).
//   - Attempts, Backoff, OnConflict and RetryIf are options of Update and Do.
//   - Table, made by NewTable of pgoptimistic or mysqloptimistic, writes the statements: Update,
//     Delete, Touch, Upsert, UpdateMany. Int, IntFromZero, Timestamp, UUID and Columns are its
//     versions.
//   - ETag, IfMatch and HTTPStatus carry a version to the client of an HTTP service and back.
//
// # What is guaranteed
//
// The same holds on Postgres, MySQL and MariaDB, in a transaction of the caller's or without one,
// and at every isolation level but READ UNCOMMITTED of MySQL and MariaDB (see Isolation):
//
//   - A write that returns no error hit one row, which had the version expected. If 64 callers add
//     to one row, no update is lost.
//   - After a conflict, a row that is not there, an invalid key or bad input, nothing was written.
//   - An error that may hide a write is dblock.ErrOutcomeUnknown, and is never repeated. (The
//     functions of this package alone pass on the errors of the database's driver: those of
//     pgoptimistic and mysqloptimistic say what they mean.)
//   - Nothing is repeated without end, nor in a transaction of the caller's.
//   - A Table's version is a required argument, and its zero value is refused; only Table.Any
//     overwrites unseen.
//
// # What is not
//
//   - Other writers of the row must change its version with it: a statement that leaves the version
//     goes unseen. If some do not, compare the columns themselves (Columns).
//   - Integers begin at 1 again when a row is deleted and made anew: a caller that read it before
//     may overwrite the new one. UUIDs do not.
//   - Times are the server's, and later than the one before whatever its clock does. But a row that
//     is deleted and made anew while the clock is set back may come to the same time. A statement
//     that sets the column otherwise must make it grow.
//   - What was decided by rows that are read and not written is not checked. Give them a version
//     that is touched (Table.Touch), or use a transaction at SERIALIZABLE.
//   - Fairness. On a row that many callers want at once some lose again and again, and the work of
//     all but one is wasted: take a lock, at once or by EscalateAfter.
//
// # Isolation
//
// On MySQL and MariaDB a version that is read at READ UNCOMMITTED may be rolled back. The next
// writer makes the same version again, and a write that expects it would overwrite that one unseen.
// A Table and Update refuse a pool whose sessions have this isolation. The transactions of Do and
// of an escalation have READ COMMITTED. The isolation of a *sql.Tx or a *sql.Conn that the caller
// gives cannot be seen: read versions in none at READ UNCOMMITTED.
//
// Otherwise, outside of a transaction each statement is its own, and the session's isolation does
// not matter. Within one at REPEATABLE READ or above, or with MariaDB's innodb_snapshot_isolation,
// the server may refuse the write itself if the row has changed: that is dblock.ErrConflict, by
// which the whole transaction has to be repeated. On MySQL and MariaDB without it the write hits
// the row as it is now, and so meets the version there: a *StaleError.
//
// # Affected rows on MySQL and MariaDB
//
// They count rows that have changed, unless the DSN has clientFoundRows. Each write changes the
// version, so that both are the same. A statement of the caller's that leaves a row as it was hits
// none, and is a conflict: set the version in every one.
//
// # Update and Do of a driver
//
// load and save of Update are given what their statements are to run on. As a rule that is db
// itself, and they are two statements without a transaction; after EscalateAfter it is a
// transaction at READ COMMITTED, which Update begins and commits.
//
// If db is a transaction of the caller's there is one attempt, whatever the options say, and no
// lock. At REPEATABLE READ and above a second one would read the same again. What has been written
// before in that transaction is not Update's to repeat. The error says so; roll back, and repeat
// the whole transaction, as Do does.
//
// Do calls fn in a new transaction at READ COMMITTED each time, and commits it if fn returns nil.
// If fn returns a conflict, or the server reports one, the transaction is rolled back, and after a
// pause there is the next one. It is for changes of several rows, each by its version, that are
// written together or not at all. What fn does outside of the transaction it does more than once.
// fn must return the errors of its statements, must not end the transaction, nor use it after it
// has returned. With EscalateAfter the lock is taken before fn is called.
//
// # Escalation
//
// EscalateAfter of a driver has the attempts after the first n made in a transaction that takes a
// lock first. If it is the lock of the row, for which every writer of the row waits, the next
// attempt succeeds. There is no pause before it: callers wait at the server, each with a
// connection. Together they leave one connection of a pool of two or more, for a mutate that uses
// the pool. Others that wait for the same row on the pool, without this option, leave none.
//
// LockRowAfter is for a row that many callers want at once. Once an attempt has failed, the callers
// of one process that want the row queue in FIFO order and try one after the other, instead of a
// pause; later callers queue behind them. So they don't fail because of each other, and keep no
// connection while they wait; the lock is for writers of other processes. A single caller, and one
// whose first attempt succeeds, does not wait.
//
// The wait is bounded by the context alone. Meanwhile another caller's mutate runs (with Do: fn),
// which should be quick. A mutate that updates another row with this option has to pass on the
// context that it is given. Such a nested update does not queue, and waits for the lock of its row
// for a second. If it does not get it, the outer update rolls back and is tried again, as two may
// lock their rows in opposite orders; what the nested one has written stays. To update several rows
// together use Do.
//
// # Errors
//
// ErrStale, ErrNotFound, ErrSuppressed and ErrTooMany are this package's, each with a type that
// names the row. dblock.ErrConflict, ErrOutcomeUnknown, ErrUnavailable, ErrBusy, ErrOverloaded and
// *dblock.InvalidError mean what they mean everywhere. They are disjoint.
//
// # Defaults
//
// 10 attempts (Attempts, 1 to 1,000). After each there is a pause of a random length between
// nothing and a bound that begins at 2 ms and doubles up to 100 ms (Backoff). No lock is taken
// (EscalateAfter), and only conflicts are repeated (RetryIf).
package optimistic
