package examples

import (
	"context"
	"errors"

	"gorm.io/gorm"

	"github.com/dblock-go/dblock/optimistic"
)

// gormAccount is GORM's model of an account.
type gormAccount struct {
	ID      int64
	Balance int64
	Version int64
}

// TableName is singular, which GORM would not guess.
func (gormAccount) TableName() string { return "account" }

// Gorm is a service that uses GORM, on Postgres, MySQL or MariaDB. Where GORM says that no row was
// hit, it is no error to it.
func Gorm(db *gorm.DB, retryable func(error) bool) Deposit {
	return func(ctx context.Context, id, amount int64) (int64, error) {
		saved, err := optimistic.Update(ctx,
			func(ctx context.Context) (a gormAccount, err error) {
				err = db.WithContext(ctx).Take(&a, id).Error
				if errors.Is(err, gorm.ErrRecordNotFound) {
					err = &optimistic.NotFoundError{Table: "account", Key: id}
				}
				return a, err
			},
			func(_ context.Context, a *gormAccount) error {
				a.Balance += amount
				return nil
			},
			func(ctx context.Context, a gormAccount) (gormAccount, error) {
				result := db.WithContext(ctx).Model(&gormAccount{}).Where("id = ? AND version = ?", a.ID, a.Version).
					Updates(map[string]any{"balance": a.Balance, "version": a.Version + 1})
				err := optimistic.Rows(result.RowsAffected, result.Error, account(a.ID, a.Version))
				a.Version++
				return a, err
			},
			optimistic.RetryIf(retryable)) // the server's deadlocks: pglock.Retryable or mysqllock.Retryable
		return saved.Balance, err
	}
}
