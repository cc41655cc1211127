// Package optimistic updates rows without holding a lock while somebody thinks: a row is read with
// its version, changed, and written only if it still has that version. Whoever comes second is told
// so, and nothing is overwritten unseen.
//
// What there is, from the least to the most that is done for you:
//
//   - Rows, One, Result and Tag make a *StaleError of what a query returns that sqlc has generated, or you have written; Diagnose
//     tells a row that has changed from one that is gone.
//   - Update reads, changes and writes, again where it met somebody; Do repeats anything else. Those of pgoptimistic and
//     mysqloptimistic know their server's errors, see a transaction of the caller's, and take a lock after too many attempts
//     (EscalateAfter).
//   - Table, made by NewTable of pgoptimistic and mysqloptimistic, writes the statements: Update, Delete, Touch, Upsert, UpdateMany.
//   - ETag, IfMatch and HTTPStatus carry a version to the client of an HTTP service and back.
//
// # What is guaranteed
//
// On Postgres, MySQL and MariaDB alike, in a transaction of yours or without one, at every
// isolation level but READ UNCOMMITTED of MySQL and MariaDB (see Isolation):
//
//   - A write that is told to have succeeded hit one row, which had the version expected. 64 who add to one row lose no update.
//   - A conflict, a row that is not there, a key that is none, bad input: nothing was written.
//   - An error that may hide a write is dblock.ErrOutcomeUnknown, and is never repeated. (The functions of this package alone pass on
//     the driver's errors: those of the engine rooms say what they mean.)
//   - Nothing is repeated without end, nor in a transaction of the caller's.
//   - A Table's version is a required argument, and its zero value is refused; what overwrites unseen goes through Table.Any.
//
// # What is not
//
//   - Others who write the row must change its version with it: a statement that leaves the version goes unseen. Where some do not,
//     compare the columns themselves (Columns).
//   - Integers begin at 1 again when a row is deleted and made anew: who read it before may overwrite the new one. UUIDs do not.
//   - Times are the server's, and later than the one before whatever its clock does; but a row that is deleted and made anew while
//     the clock is set back may come to the same time, and whoever sets the column otherwise must see to it that it grows.
//   - What was decided by rows that are read and not written is not checked. Give them a version that is touched (Table.Touch),
//     or use a transaction at SERIALIZABLE.
//   - Fairness. On a row that many want at once some lose again and again, and the work of all but one is in vain: take a lock, at once
//     or by EscalateAfter.
//
// # Isolation
//
// On MySQL and MariaDB a version that is read at READ UNCOMMITTED may be rolled back. The next
// writer makes the same version again, and a write that expects it would overwrite that one unseen.
// A Table and Update refuse a pool whose sessions have this isolation. The transactions of Do and
// of an escalation have READ COMMITTED. The isolation of a *sql.Tx or a *sql.Conn that you give
// cannot be seen: read versions in none at READ UNCOMMITTED.
//
// Otherwise, outside of a transaction each statement is its own, and the session's isolation does
// not matter. Within one at REPEATABLE READ or above, or with MariaDB's innodb_snapshot_isolation,
// the server may refuse the write itself where the row has changed: that is dblock.ErrConflict, by
// which the whole transaction has to be repeated. On MySQL and MariaDB without it the write hits
// the row as it is now, and so meets the version there: a *StaleError.
//
// # Affected rows on MySQL and MariaDB
//
// They count rows that have changed, unless the DSN has clientFoundRows. Each write changes the
// version, so that both are the same. A statement of your own that leaves a row as it was hits
// none, and is a conflict: set the version in every one.
//
// # Errors
//
// ErrStale, ErrNotFound and ErrTooMany are this package's, each with a type that names the row.
// dblock.ErrConflict, ErrOutcomeUnknown, ErrUnavailable, ErrBusy, ErrOverloaded and
// *dblock.InvalidError mean what they mean everywhere. They are disjoint.
//
// # Defaults
//
// 10 attempts (Attempts, 1 to 1,000), after each a pause of a random length between nothing and a
// bound that begins at 2 ms and doubles up to 100 ms (Backoff), no lock (EscalateAfter), and
// nothing is repeated but conflicts (RetryIf).
package optimistic
