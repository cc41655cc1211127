package examples

import (
	"context"

	"github.com/dblock-go/dblock/examples/optimistic/ent"
	entaccount "github.com/dblock-go/dblock/examples/optimistic/ent/account"
	"github.com/dblock-go/dblock/optimistic"
)

// Ent is a service that uses ent, on Postgres, MySQL or MariaDB. Update, and not UpdateOne: that
// says only that there is no such row.
func Ent(client *ent.Client, retryable func(error) bool) Deposit {
	return func(ctx context.Context, id, amount int64) (int64, error) {
		saved, err := optimistic.Update(ctx,
			func(ctx context.Context) (a ent.Account, err error) {
				found, err := client.Account.Get(ctx, id)
				if ent.IsNotFound(err) {
					err = &optimistic.NotFoundError{Table: "account", Key: id}
				}
				if err == nil {
					a = *found
				}
				return a, err
			},
			func(_ context.Context, a *ent.Account) error {
				a.Balance += amount
				return nil
			},
			func(ctx context.Context, a ent.Account) (ent.Account, error) {
				n, err := client.Account.Update().Where(entaccount.ID(a.ID), entaccount.Version(a.Version)).
					SetBalance(a.Balance).SetVersion(a.Version + 1).Save(ctx)
				err = optimistic.Rows(int64(n), err, account(a.ID, a.Version))
				a.Version++
				return a, err
			},
			optimistic.RetryIf(retryable)) // the server's deadlocks: pglock.Retryable or mysqllock.Retryable
		return saved.Balance, err
	}
}
