// Package mysqloptimistic is the driver of package optimistic for MySQL and MariaDB, with
// database/sql. Package optimistic has the contract and the guarantees. Update and Do of this
// package know the server's errors and can take a lock (EscalateAfter, LockRow, LockRowAfter).
// NewTable is for tables without queries.
//
//	accounts, err := mysqloptimistic.NewTable("account", "id", optimistic.Int("version"))
//	version, err = accounts.Update(ctx, db, id, version, optimistic.Set{"balance": 110})
//
// It needs no tables of dblock's. The db may be a *sql.DB, a *sql.Conn or a *sql.Tx.
package mysqloptimistic

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/mysqllock"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/internal/attempt"
)

// DB is what sqlc calls DBTX: a *sql.DB, a *sql.Conn or a *sql.Tx.
type DB interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Update reads a row, changes it and writes it, and does all of that again if another caller has
// written the row meanwhile: see optimistic.Update, and "Update and Do of a driver" there.
//
// In a transaction of the caller's there is one attempt. That is a *sql.Tx, and whatever is not a
// *sql.DB: it can't be seen whether a *sql.Conn is in a transaction.
//
// A commit after EscalateAfter is bounded by the DSN's readTimeout, and not by ctx, as that of
// mysqllock.RunTx is.
//
// Besides what optimistic.Do says, deadlocks are tried again, and a row that has changed by
// MariaDB's innodb_snapshot_isolation, if mysqllock.Retryable reports true. A lock that was not had
// within innodb_lock_wait_timeout, 50 s by default, is not: RetryIf.
//
// Errors: dblock.ErrInvalid for a *sql.DB whose sessions have autocommit off, a sql_select_limit, a
// completion_type or READ UNCOMMITTED. Those of optimistic.Do. Those of load and save are returned
// unchanged, with two exceptions. dblock.ErrUnavailable: there is no connection, or it was lost
// before save, and nothing was written. dblock.ErrOutcomeUnknown: the connection was lost, or ctx
// ended, while save or the commit ran. That is not tried again, and may be written. An error of
// save's that is neither the server's nor dblock's is that, too, outside of a transaction: it may
// have come after the statement. Refuse in mutate what is to be refused.
func Update[T any](
	ctx context.Context, db DB, load func(context.Context, DB) (T, error), mutate func(context.Context, *T) error,
	save func(context.Context, DB, T) (T, error), opts ...optimistic.Option,
) (T, error) {
	on, err := targetOf(db)
	if err != nil {
		var none T
		return none, err
	}
	s := attempt.Steps[T, DB]{Load: load, Mutate: mutate, Save: save}
	if load != nil && on.Queue != nil {
		s.Load = func(ctx context.Context, db DB) (row T, err error) {
			if _, err := poolOf(ctx, db); err != nil {
				return row, err
			}
			return load(ctx, db)
		}
	}
	return attempt.Update(ctx, &attempts, on, s, opts)
}

// Do calls fn in a new transaction each time, until the transaction meets no conflict: see "Update
// and Do of a driver" of package optimistic. attempt is 1 the first time. mysqllock.RunTx runs it.
//
// Errors: those of optimistic.Do and of mysqllock.RunTx; fn's own, as it is, if that is nothing to
// be tried again. Nothing was written, but for dblock.ErrOutcomeUnknown, if the connection was lost
// while it committed: that is not repeated.
func Do(ctx context.Context, db *sql.DB, fn func(ctx context.Context, tx *sql.Tx, attempt int) error, opts ...optimistic.Option) error {
	var call func(context.Context, DB, int) error
	if fn != nil {
		call = func(ctx context.Context, tx DB, n int) error { return fn(ctx, tx.(*sql.Tx), n) }
	}
	return attempt.Do(ctx, &attempts, attempt.Target[DB]{DB: db, Queue: db}, call, opts)
}

// attempts is the driver of Update and Do. The plan counts the attempts of a transaction. The
// target of one is a *sql.DB.
var attempts = attempt.Driver[DB]{
	IsConflict:    mysql.IsConflict,
	IsUnavailable: isUnavailable,
	ClassOf:       classOf,
	InTx: func(ctx context.Context, db DB, fn func(DB) error) error {
		return mysqllock.RunTx(ctx, db.(*sql.DB), mysqllock.TxOptions{Attempts: 1}, func(tx *sql.Tx) error { return fn(tx) })
	},
	Connections: func(pool any) int { return pool.(*sql.DB).Stats().MaxOpenConnections },
}

// targetOf takes whatever is not a *sql.DB for a transaction of the caller's.
func targetOf(db DB) (attempt.Target[DB], error) {
	on := attempt.Target[DB]{DB: db, CallersTx: true, Alone: true}
	isNil := false
	switch db := db.(type) {
	case nil:
		isNil = true
	case *sql.DB:
		isNil = db == nil
		on.CallersTx, on.Queue = false, db
	case *sql.Tx:
		isNil = db == nil
		on.Alone = false
	case *sql.Conn:
		isNil = db == nil
	}
	if isNil {
		return on, attempt.Invalid("db", "it is nil")
	}
	return on, nil
}

// EscalateAfter has the attempts after the first n made in a transaction that takes a lock first:
// see Escalation of package optimistic. n is 1 to one less than Attempts. Default: no lock is
// taken.
//
//	mysqloptimistic.EscalateAfter(3, mysqloptimistic.LockRow("account", "id", id))
//
// lock runs its statements on what it is given, a *sql.Tx. Its errors are the attempt's. In a
// transaction of the caller's it is never called.
func EscalateAfter(n int, lock func(context.Context, DB) error) optimistic.Option {
	return attempt.Escalate(n, lock, nil)
}

// LockRow is a lock for EscalateAfter: that of the row of a table in which column has the value
// key, as mysqllock.LockRow takes it. It waits for as long as the server does
// (innodb_lock_wait_timeout, 50 s by default), or a second in a nested update, while the context
// lives. column needs an index, or a *mysqllock.ScanError says so. No row is sql.ErrNoRows.
func LockRow[K any](table, column string, key K) func(context.Context, DB) error {
	return func(ctx context.Context, db DB) error {
		tx, ok := db.(*sql.Tx)
		if !ok {
			return attempt.Invalid("db", "%T is no transaction, or none that is seen: a lock would be free again at once", db)
		}
		return mysqllock.LockRow(ctx, tx, table, column, key, dblock.RowLock{Wait: attempt.LockWait(ctx)})
	}
}

// LockRowAfter is EscalateAfter with the lock LockRow. Besides, the callers of one process queue
// for the row after a conflict: see Escalation of package optimistic.
func LockRowAfter[K any](n int, table, column string, key K) optimistic.Option {
	return attempt.Escalate(n, LockRow(table, column, key), table+"\x00"+column+"\x00"+fmt.Sprint(key))
}
