package pginventory

import (
	"context"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// Balances reads the books in one statement, and so in one snapshot.
func (d *database) Balances(ctx context.Context, skus []string) ([]driver.Balance, error) {
	balances, err := alone(ctx, d, func(on pgdb.DBTX) ([]driver.Balance, error) { return d.balances(ctx, on, skus) })
	return balances, sqlerr.Unwritten(err)
}

func (d *database) balances(ctx context.Context, on pgdb.DBTX, skus []string) ([]driver.Balance, error) {
	rows, err := d.q.Balances(ctx, on, len(skus) == 0, skus)
	return driver.Each(rows, func(r pgdb.BalancesRow) driver.Balance {
		return driver.Balance{SKU: r.Sku, Available: r.Available, Allotted: r.Allotted, Held: r.Held, Sold: r.Sold, Restocked: r.Restocked}
	}), err
}

// WrongQuotas reads in one statement, as Balances does.
func (d *database) WrongQuotas(ctx context.Context, skus []string) ([]string, error) {
	wrong, err := alone(ctx, d, func(on pgdb.DBTX) ([]string, error) { return d.q.WrongQuotas(ctx, on, len(skus) == 0, skus) })
	return wrong, sqlerr.Unwritten(err)
}
