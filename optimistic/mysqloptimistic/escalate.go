package mysqloptimistic

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/mysqllock"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/internal/attempt"
)

// EscalateAfter has the attempts after the first n made in a transaction that takes a lock first.
// If it is the lock of the row, for which every writer of the row waits, as every UPDATE does, the
// next attempt succeeds. There is no pause before it: callers wait at the server, each with a
// connection. n is 1 to one less than Attempts. For the row itself there is LockRowAfter, which is
// faster in a crowd.
//
//	mysqloptimistic.EscalateAfter(3, mysqloptimistic.LockRow("account", "id", id))
//
// lock runs its statements on what it is given, a *sql.Tx. Its errors are the attempt's. In a transaction of the caller's it is
// never called. Default: no lock is taken, and in a crowd some run out of attempts.
func EscalateAfter(n int, lock func(context.Context, DB) error) optimistic.Option {
	return attempt.Opt(func(p *attempt.Plan) { p.EscalateAfter, p.Lock, p.Row = n, lock, nil })
}

// LockRow is a lock for EscalateAfter: that of the row of a table in which column has the value key, as mysqllock.LockRow takes it. It
// waits for as long as the server does (innodb_lock_wait_timeout, 50 s by default), or a second in a nested update, while the context lives. column needs an index,
// or a *mysqllock.ScanError says so. No row is sql.ErrNoRows.
func LockRow[K any](table, column string, key K) func(context.Context, DB) error {
	return func(ctx context.Context, db DB) error {
		tx, ok := db.(*sql.Tx)
		if !ok {
			return &dblock.InvalidError{Field: "db", Reason: fmt.Sprintf("%T is no transaction, or none that is seen: a lock would be free again at once", db)}
		}
		return mysqllock.LockRow(ctx, tx, table, column, key, dblock.RowLock{Wait: attempt.LockWait(ctx)})
	}
}

// LockRowAfter is EscalateAfter with the lock LockRow, for a row that many callers want at once.
// Once an attempt has failed, the callers of one process that want the row queue in FIFO order and
// try one after the other, instead of a pause; later callers queue behind them. So they don't fail
// because of each other, and keep no connection while they wait; the lock is for writers of other
// processes. A lone caller, and one whose first attempt succeeds, does not wait.
//
// The wait is bounded by the context alone. Meanwhile another caller's mutate runs (with Do: fn),
// which should be quick. A mutate that updates another row with this option has to pass on the
// context that it is given. Such a nested update does not queue, and waits for the lock of its row
// for a second. If it does not get it, the outer update rolls back and is tried again, as two may
// lock their rows in opposite orders; what the nested one has written stays. To update several rows
// together use Do.
func LockRowAfter[K any](n int, table, column string, key K) optimistic.Option {
	lock := LockRow(table, column, key)
	name := table + "\x00" + column + "\x00" + fmt.Sprint(key)
	return attempt.Opt(func(p *attempt.Plan) { p.EscalateAfter, p.Lock, p.Row = n, lock, name })
}

// row is one that callers of this process may stand in line for.
type row struct {
	pool *sql.DB
	name string
}

// row has those who use the same pool stand in one line for a row. nil: in none.
func (e *effort) row() any {
	name, isRow := e.plan.Row.(string)
	if !isRow || e.plan.Lock == nil {
		return nil
	}
	return row{e.pool, name}
}

// lockOf refuses the lock of another driver.
func lockOf(p *attempt.Plan) (func(context.Context, DB) error, error) {
	if p.Lock == nil {
		return nil, nil
	}
	lock, ok := p.Lock.(func(context.Context, DB) error)
	switch {
	case !ok:
		return nil, &dblock.InvalidError{Field: "EscalateAfter", Reason: "it is that of another driver"}
	case lock == nil:
		return nil, &dblock.InvalidError{Field: "EscalateAfter", Reason: "its lock is nil"}
	}
	return lock, nil
}
