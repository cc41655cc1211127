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
// load and save are two statements of their own, without a transaction: that takes no round trip
// that the two written by hand would not. Do says what is tried again, and what is not. Update of a
// driver also knows its server's errors, sees a transaction of the caller's, and can take a lock
// when it has failed too often.
//
// Errors: those of Do, with load's and save's in the place of fn's. The row is the zero value then.
func Update[T any](
	ctx context.Context, load func(context.Context) (T, error), mutate func(context.Context, *T) error,
	save func(context.Context, T) (T, error), opts ...Option,
) (T, error) {
	var saved, none T
	p, err := planOf(opts)
	if err != nil {
		return none, err
	}
	if err := attempt.CheckSteps(load != nil, mutate != nil, save != nil); err != nil {
		return none, err
	}
	err = p.Run(ctx, func(ctx context.Context, _ int) error {
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
