package pgoptimistic

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/internal/attempt"
	"github.com/dblock-go/dblock/pglock"
)

// Do calls fn in a new transaction at READ COMMITTED each time, and commits it if fn returns nil.
// If fn returns a conflict, or the server reports one, the transaction is rolled back, and after a
// pause there is the next one. attempt is 1 the first time. It is for changes of several rows, each
// by its version, that are written together or not at all. What fn does outside of the transaction
// it does more than once.
//
// fn must return the errors of its statements, must not end the transaction, nor use it after it has returned; see pglock.RunTx,
// which runs it. With EscalateAfter the lock is taken before fn is called.
//
// Errors: those of optimistic.Do and of pglock.RunTx; fn's own, as it is, if that is nothing to be
// tried again. Nothing was written, but for dblock.ErrOutcomeUnknown, if the connection was lost,
// or ctx ended, while it committed: that is not repeated.
func Do(ctx context.Context, pool pglock.TxBeginner, fn func(ctx context.Context, tx pgx.Tx, attempt int) error, opts ...optimistic.Option) error {
	e := effort{pool: pool}
	var err error
	if e.plan, err = attempt.New(opts); err != nil {
		return err
	}
	if e.lock, err = lockOf(&e.plan); err != nil {
		return err
	}
	if fn == nil {
		return &dblock.InvalidError{Field: "fn", Reason: "it is nil"}
	}
	e.plan.Row = e.row()
	e.plan.IsConflict = postgres.IsConflict
	return e.plan.Run(ctx, func(ctx context.Context, attempt int) error {
		call := func(tx pgx.Tx) error { return fn(ctx, tx, attempt) }
		if e.plan.Escalates(attempt) {
			return e.locked(ctx, call)
		}
		return pglock.RunTx(ctx, pool, onceOnly, call)
	})
}
