// Package pgoptimistic is the driver of package optimistic for Postgres, with pgx. Package
// optimistic has the contract and the guarantees. Update and Do of this package know the server's
// errors and can take a lock (EscalateAfter, LockRow, LockRowAfter). NewTable is for tables without
// queries.
//
//	accounts, err := pgoptimistic.NewTable("account", "id", optimistic.Int("version"))
//	version, err = accounts.Update(ctx, pool, id, version, optimistic.Set{"balance": 110})
//
// It needs no tables of dblock's. The pool may be a *pgxpool.Pool, a connection or a transaction.
package pgoptimistic

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/internal/attempt"
	"github.com/dblock-go/dblock/pglock"
)

// DB is what sqlc calls DBTX: a *pgxpool.Pool, a connection or a pgx.Tx.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Update reads a row, changes it and writes it, and does all of that again if another caller has
// written the row meanwhile: see optimistic.Update, and "Update and Do of a driver" there.
//
// In a transaction of the caller's there is one attempt. That is a pgx.Tx, a connection that is in
// a transaction, and whatever can't begin one.
//
// Besides what optimistic.Do says, deadlocks and failed serializations are tried again, if
// pglock.Retryable reports true.
//
// Errors: those of optimistic.Do; load's and save's, as they are, but: dblock.ErrUnavailable if
// there is no connection, or it was lost before save; nothing was written. dblock.ErrOutcomeUnknown
// if it was lost, or ctx ended, while save or the commit ran: it is not tried again, and may be
// written. An error of save's that is neither the server's nor dblock's is that, too, outside of a
// transaction: it may have come after the statement. Refuse in mutate what is to be refused.
func Update[T any](
	ctx context.Context, db DB, load func(context.Context, DB) (T, error), mutate func(context.Context, *T) error,
	save func(context.Context, DB, T) (T, error), opts ...optimistic.Option,
) (T, error) {
	on, err := targetOf(db)
	if err != nil {
		var none T
		return none, err
	}
	return attempt.Update(ctx, &attempts, on, attempt.Steps[T, DB]{Load: load, Mutate: mutate, Save: save}, opts)
}

// Do calls fn in a new transaction each time, until the transaction meets no conflict: see "Update
// and Do of a driver" of package optimistic. attempt is 1 the first time. pglock.RunTx runs it.
//
// Errors: those of optimistic.Do and of pglock.RunTx; fn's own, as it is, if that is nothing to be
// tried again. Nothing was written, but for dblock.ErrOutcomeUnknown, if the connection was lost,
// or ctx ended, while it committed: that is not repeated.
func Do(ctx context.Context, pool pglock.TxBeginner, fn func(ctx context.Context, tx pgx.Tx, attempt int) error, opts ...optimistic.Option) error {
	var call func(context.Context, DB, int) error
	if fn != nil {
		call = func(ctx context.Context, tx DB, n int) error { return fn(ctx, tx.(pgx.Tx), n) }
	}
	d := attempts
	d.InTx = func(ctx context.Context, _ DB, fn func(DB) error) error { return inTx(ctx, pool, fn) }
	return attempt.Do(ctx, &d, attempt.Target[DB]{Queue: queueOf(pool)}, call, opts)
}

// attempts is the driver of Update and Do.
var attempts = attempt.Driver[DB]{
	IsConflict:    postgres.IsConflict,
	IsUnavailable: isUnavailable,
	ClassOf:       classOf,
	InTx: func(ctx context.Context, db DB, fn func(DB) error) error {
		return inTx(ctx, db.(pglock.TxBeginner), fn) // the target is one, as it is not the caller's transaction
	},
	Connections: func(pool any) int { return int(pool.(*pgxpool.Pool).Stat().MaxConns()) },
}

// inTx runs one transaction: the attempts are counted by the plan.
func inTx(ctx context.Context, pool pglock.TxBeginner, fn func(DB) error) error {
	return pglock.RunTx(ctx, pool, pglock.TxOptions{Attempts: 1}, func(tx pgx.Tx) error { return fn(tx) })
}

// targetOf reports whether db is in a transaction, or can't begin one.
func targetOf(db DB) (attempt.Target[DB], error) {
	on := attempt.Target[DB]{DB: db, CallersTx: true}
	if _, is := db.(pgx.Tx); is {
		return on, nil
	}
	conn, isNil := postgres.ConnOf(db)
	switch {
	case isNil:
		return on, attempt.Invalid("db", "it is nil")
	case postgres.InTransaction(conn):
		return on, nil
	}
	_, begins := db.(pglock.TxBeginner) // a type of the host's may have no such method
	on.Alone, on.CallersTx, on.Queue = true, !begins, queueOf(db)
	return on, nil
}

// queueOf has the callers of one pool queue for a row.
func queueOf(db any) any {
	if pool, is := db.(*pgxpool.Pool); is {
		return pool
	}
	return nil
}

// EscalateAfter has the attempts after the first n made in a transaction that takes a lock first:
// see Escalation of package optimistic. n is 1 to one less than Attempts. Default: no lock is
// taken.
//
//	pgoptimistic.EscalateAfter(3, pgoptimistic.LockRow("account", "id", id))
//
// lock runs its statements on what it is given, a pgx.Tx. Its errors are the attempt's. In a
// transaction of the caller's it is never called.
func EscalateAfter(n int, lock func(context.Context, DB) error) optimistic.Option {
	return attempt.Escalate(n, lock, nil)
}

// LockRow is a lock for EscalateAfter: that of the row of a table in which column has the value
// key, as pglock.LockRow takes it. It waits for as long as the server does (lock_timeout, which is
// off by default), or a second in a nested update, while the context lives. No row is
// pgx.ErrNoRows.
func LockRow[K any](table, column string, key K) func(context.Context, DB) error {
	return func(ctx context.Context, db DB) error {
		tx, ok := db.(pglock.Tx)
		if !ok {
			return attempt.Invalid("db", "%T is no transaction, and a lock of it would be free again at once", db)
		}
		return pglock.LockRow(ctx, tx, table, column, key, dblock.RowLock{Wait: attempt.LockWait(ctx)})
	}
}

// LockRowAfter is EscalateAfter with the lock LockRow. Besides, the callers of one process queue
// for the row after a conflict: see Escalation of package optimistic.
func LockRowAfter[K any](n int, table, column string, key K) optimistic.Option {
	return attempt.Escalate(n, LockRow(table, column, key), table+"\x00"+column+"\x00"+fmt.Sprint(key))
}
