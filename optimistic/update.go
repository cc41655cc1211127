package optimistic

import (
	"context"

	"github.com/dblock-go/dblock/optimistic/internal/attempt"
)

// Update reads a row, changes it and writes it, and does all of that again if another caller has
// written the row meanwhile. It returns the row as save returned it.
//
// load reads the row with its version. mutate changes it, and nothing else: it runs again on what
// is read anew, so whatever it does elsewhere it does more than once. Its error ends Update, as it
// is. save writes the row if it still has that version, with the next one, and returns it as it
// has become; Rows, One, Result and Tag make the *StaleError that says that it has not:
//
//	account, err := optimistic.Update(ctx,
//		func(ctx context.Context) (db.Account, error) { return q.GetAccount(ctx, id) },
//		func(_ context.Context, a *db.Account) error { a.Balance += 10; return nil },
//		func(ctx context.Context, a db.Account) (db.Account, error) {
//			a, err := q.UpdateAccount(ctx, db.UpdateAccountParams{ID: a.ID, Version: a.Version, Balance: a.Balance})
//			return optimistic.One(a, err, optimistic.Row{Table: "account", Key: id})
//		})
//
// load and save are two statements of their own, without a transaction. Do says what is tried
// again, and what is not. Update of a driver also knows its server's errors, sees a transaction of
// the caller's, and can take a lock when it has failed too often.
//
// Errors: those of Do, with load's and save's in the place of fn's. The row is the zero value then.
func Update[T any](
	ctx context.Context, load func(context.Context) (T, error), mutate func(context.Context, *T) error,
	save func(context.Context, T) (T, error), opts ...Option,
) (T, error) {
	var saved, none T
	p, err := planOf(opts)
	if err == nil {
		err = attempt.CheckSteps(load != nil, mutate != nil, save != nil)
	}
	if err != nil {
		return none, err
	}
	err = p.Run(ctx, func(ctx context.Context, _ int, _ bool) error {
		row, err := load(ctx)
		if err != nil {
			return err
		}
		if err := mutate(ctx, &row); err != nil {
			return attempt.Stop(err)
		}
		saved, err = save(ctx, row)
		return err
	})
	if err != nil {
		return none, err
	}
	return saved, nil
}

// planOf refuses what only a driver can do.
func planOf(opts []Option) (attempt.Plan, error) {
	p, err := attempt.New(opts)
	if err == nil && p.Lock != nil {
		err = invalid("EscalateAfter", "a lock needs a transaction: use Update or Do of the driver that the option is from")
	}
	return p, err
}

// Do calls fn until its error is not a conflict, or as often as Attempts says, with pauses in
// between. attempt is 1 the first time. fn reads, changes and writes anew each time; it must leave
// nothing written if it returns a conflict: begin a transaction in it and roll that back, or let
// one statement do all. Do of a driver hands one out.
//
// A conflict is ErrStale, or dblock.ErrConflict: the server's, as the packages of dblock report it.
// To have a server's deadlocks tried again use RetryIf(pglock.Retryable), or Do of a driver. An
// error that matches dblock.ErrOutcomeUnknown, dblock.ErrFenced or dblock.ErrLost is never a
// conflict, whatever else it matches, and neither is a context's error.
//
// It can't see a transaction of the caller's: within one, at REPEATABLE READ or above, no attempt
// but the first can succeed. Repeat such a transaction as a whole, or use Do of a driver, which
// sees it.
//
// Errors: fn's own, as it is, if that is no conflict. When all attempts have met one: a
// *StaleError with the number of Attempts, or an error that matches dblock.ErrConflict; it wraps
// the last. If ctx ended in between: an error that matches its cause and the last conflict. An
// *dblock.InvalidError for an option, before fn is called. A panic of fn's passes through.
func Do(ctx context.Context, fn func(ctx context.Context, attempt int) error, opts ...Option) error {
	p, err := planOf(opts)
	if err != nil {
		return err
	}
	if fn == nil {
		return invalid("fn", "it is nil")
	}
	return p.Run(ctx, func(ctx context.Context, attempt int, _ bool) error { return fn(ctx, attempt) })
}
