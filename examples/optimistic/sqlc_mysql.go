package examples

import (
	"context"
	"database/sql"
	"errors"

	"github.com/dblock-go/dblock/examples/optimistic/mysqlaccount"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/mysqloptimistic"
)

// SqlcMySQL has queries that return how many rows they hit (:execrows). The version that was read
// is raised by one.
func SqlcMySQL(pool *sql.DB) Deposit {
	return func(ctx context.Context, id, amount int64) (int64, error) {
		saved, err := mysqloptimistic.Update(ctx, pool,
			func(ctx context.Context, db mysqloptimistic.DB) (mysqlaccount.Account, error) {
				return mysqlaccount.New(db).GetAccount(ctx, id)
			},
			func(_ context.Context, a *mysqlaccount.Account) error {
				a.Balance += amount
				return nil
			},
			func(ctx context.Context, db mysqloptimistic.DB, a mysqlaccount.Account) (mysqlaccount.Account, error) {
				n, err := mysqlaccount.New(db).UpdateAccount(ctx, mysqlaccount.UpdateAccountParams{ID: a.ID, Version: a.Version, Balance: a.Balance})
				err = optimistic.Rows(n, err, account(a.ID, a.Version))
				a.Version++
				return a, err
			},
			mysqloptimistic.LockRowAfter(3, "account", "id", id))
		return saved.Balance, err
	}
}

// TransferMySQL writes two accounts, or none of them: Do gives each attempt a transaction.
func TransferMySQL(ctx context.Context, pool *sql.DB, from, to, amount int64) error {
	return mysqloptimistic.Do(ctx, pool, func(ctx context.Context, tx *sql.Tx, _ int) error {
		q := mysqlaccount.New(tx)
		for _, by := range ordered(entry{from, -amount}, entry{to, amount}) { // rows are written in one order, so there are no deadlocks
			a, err := q.GetAccount(ctx, by.id)
			if err != nil {
				return err
			}
			if a.Balance += by.amount; a.Balance < 0 {
				return errors.New("there is not that much")
			}
			n, err := q.UpdateAccount(ctx, mysqlaccount.UpdateAccountParams{ID: a.ID, Version: a.Version, Balance: a.Balance})
			if err := optimistic.Rows(n, err, account(a.ID, a.Version)); err != nil {
				return err
			}
		}
		return nil
	})
}

// DeleteMySQL deletes an account that was read at a version, and distinguishes one that has changed
// from one that is gone.
func DeleteMySQL(ctx context.Context, pool *sql.DB, id, version int64) error {
	q := mysqlaccount.New(pool)
	n, err := q.DeleteAccount(ctx, mysqlaccount.DeleteAccountParams{ID: id, Version: version})
	return optimistic.Diagnose(optimistic.Rows(n, err, account(id, version)), func() (int64, error) {
		a, err := q.GetAccount(ctx, id)
		return a.Version, err
	})
}

// TouchMySQL raises a version, for the sake of what is kept in other tables.
func TouchMySQL(ctx context.Context, db mysqlaccount.DBTX, id, version int64) error {
	result, err := mysqlaccount.New(db).TouchAccount(ctx, mysqlaccount.TouchAccountParams{ID: id, Version: version})
	return optimistic.Result(result, err, account(id, version))
}
