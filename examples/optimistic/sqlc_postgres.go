package examples

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/examples/optimistic/pgaccount"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/pgoptimistic"
)

// SqlcPostgres has queries that return the row (:one with RETURNING).
func SqlcPostgres(pool *pgxpool.Pool) Deposit {
	return func(ctx context.Context, id, amount int64) (int64, error) {
		saved, err := pgoptimistic.Update(ctx, pool,
			func(ctx context.Context, db pgoptimistic.DB) (pgaccount.Account, error) {
				return pgaccount.New(db).GetAccount(ctx, id)
			},
			func(_ context.Context, a *pgaccount.Account) error {
				a.Balance += amount
				return nil
			},
			func(ctx context.Context, db pgoptimistic.DB, a pgaccount.Account) (pgaccount.Account, error) {
				saved, err := pgaccount.New(db).UpdateAccount(ctx, pgaccount.UpdateAccountParams{ID: a.ID, Version: a.Version, Balance: a.Balance})
				return optimistic.One(saved, err, account(a.ID, a.Version))
			},
			pgoptimistic.LockRowAfter(3, "account", "id", id))
		return saved.Balance, err
	}
}

// TransferPostgres writes two accounts, or none of them: Do gives each attempt a transaction.
func TransferPostgres(ctx context.Context, pool *pgxpool.Pool, from, to, amount int64) error {
	return pgoptimistic.Do(ctx, pool, func(ctx context.Context, tx pgx.Tx, _ int) error {
		q := pgaccount.New(tx)
		for _, by := range ordered(entry{from, -amount}, entry{to, amount}) { // rows are written in one order, so there are no deadlocks
			a, err := q.GetAccount(ctx, by.id)
			if err != nil {
				return err
			}
			if a.Balance += by.amount; a.Balance < 0 {
				return errors.New("there is not that much")
			}
			saved, err := q.UpdateAccount(ctx, pgaccount.UpdateAccountParams{ID: a.ID, Version: a.Version, Balance: a.Balance})
			if _, err = optimistic.One(saved, err, account(a.ID, a.Version)); err != nil {
				return err
			}
		}
		return nil
	})
}

// DeletePostgres deletes an account that was read at a version, and distinguishes one that has
// changed from one that is gone.
func DeletePostgres(ctx context.Context, pool *pgxpool.Pool, id, version int64) error {
	q := pgaccount.New(pool)
	n, err := q.DeleteAccount(ctx, pgaccount.DeleteAccountParams{ID: id, Version: version})
	return optimistic.Diagnose(optimistic.Rows(n, err, account(id, version)), func() (int64, error) {
		a, err := q.GetAccount(ctx, id)
		return a.Version, err
	})
}

// TouchPostgres raises a version, for the sake of what is kept in other tables.
func TouchPostgres(ctx context.Context, db pgaccount.DBTX, id, version int64) error {
	tag, err := pgaccount.New(db).TouchAccount(ctx, pgaccount.TouchAccountParams{ID: id, Version: version})
	return optimistic.Tag(tag, err, account(id, version))
}
