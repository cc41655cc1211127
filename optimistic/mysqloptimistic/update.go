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
	"runtime"
	"sync"
	"weak"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/sqlerr"
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
			if err := checkPool(ctx, db); err != nil {
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

// checked are the pools whose connections commit each statement and read all rows. It keeps none of
// them alive.
var checked = struct {
	mu    sync.RWMutex
	pools map[weak.Pointer[sql.DB]]bool
}{pools: make(map[weak.Pointer[sql.DB]]bool)}

// checkPool refuses a pool whose connections have autocommit off: a statement on it would be
// acknowledged and never be committed. It also refuses one whose connections have a
// sql_select_limit, and one at READ UNCOMMITTED: a version that is read there may be rolled back,
// and the next writer makes the same one. It asks once a pool. Other DBs are transactions, or
// connections of the caller's.
func checkPool(ctx context.Context, db DB) error {
	pool, ok := db.(*sql.DB)
	if !ok || pool == nil {
		return nil
	}
	key := weak.Make(pool)
	checked.mu.RLock()
	known := checked.pools[key]
	checked.mu.RUnlock()
	if known {
		return nil
	}
	var on bool
	var limit, completion, isolation string
	if err := pool.QueryRowContext(ctx, settings).Scan(&on, &limit, &completion, &isolation); err != nil {
		return sqlerr.Unwritten(err)
	}
	if !on {
		return attempt.Invalid("db", "its connections have autocommit off, so no statement on it would be committed; nothing was written: "+
			"take autocommit=0 out of the DSN and of the server's settings, or use a transaction")
	}
	if limit != mysql.AllRows {
		return attempt.Invalid("db", "its connections have a sql_select_limit, so the server leaves out rows that are read; nothing was written: "+
			"take sql_select_limit out of the DSN and of the server's settings")
	}
	if completion != "NO_CHAIN" {
		return attempt.Invalid("db", "its connections have completion_type = %s, so a transaction follows each one, and later statements on the "+
			"connection are not committed; nothing was written: take completion_type out of the DSN and of the server's settings", completion)
	}
	if isolation == "READ-UNCOMMITTED" {
		return attempt.Invalid("db", "its connections read at READ UNCOMMITTED, so a version that is read may be rolled back, and a write that "+
			"expects it would overwrite another one unseen; nothing was written: take it out of the DSN and of the server's settings, "+
			"and set it for the transactions that want it")
	}
	checked.mu.Lock()
	defer checked.mu.Unlock()
	if !checked.pools[key] {
		checked.pools[key] = true
		runtime.AddCleanup(pool, dropPool, key)
	}
	return nil
}

// settings are those of the session. MySQL and MariaDB have different names for the isolation.
const settings = "SELECT @@autocommit, CAST(@@sql_select_limit AS CHAR), CAST(@@completion_type AS CHAR), " +
	"/*!80000 @@transaction_isolation */ /*M! @@tx_isolation */ LIMIT 1"

func dropPool(key weak.Pointer[sql.DB]) {
	checked.mu.Lock()
	defer checked.mu.Unlock()
	delete(checked.pools, key)
}
