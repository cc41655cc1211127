package pginventory

import (
	"context"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// Lookup returns what is recorded under key.
func (d *database) Lookup(ctx context.Context, key string) ([]driver.Row, error) {
	return alone(ctx, d, func(on pgdb.DBTX) ([]driver.Row, error) {
		recorded, unconfirmed, err := d.lookUp(ctx, on, []string{key})
		if err != nil {
			return nil, sqlerr.Unwritten(err)
		}
		return recorded[key], d.confirm(ctx, on, driver.Books{Recorded: recorded, Unconfirmed: unconfirmed})
	})
}

// lookUp reads what is recorded.
func (d *database) lookUp(ctx context.Context, on pgdb.DBTX, keys []string) (recorded map[string][]driver.Row, unconfirmed bool, err error) {
	found, err := d.q.LookUpReservations(ctx, on, keys)
	recorded = make(map[string][]driver.Row, len(keys))
	for _, r := range found {
		unconfirmed = r.Unconfirmed
		recorded[r.ReservationKey] = append(recorded[r.ReservationKey], row(pgdb.ReservationsRow{
			ReservationKey: r.ReservationKey, Line: r.Line, Sku: r.Sku, Bucket: r.Bucket, Buyer: r.Buyer, Qty: r.Qty, State: r.State,
			Limited: r.Limited, LeftUs: r.LeftUs,
		}))
	}
	return recorded, unconfirmed, err
}

// Balances reads the books in one statement, and so in one snapshot.
func (d *database) Balances(ctx context.Context, skus []string) ([]driver.Balance, error) {
	balances, err := alone(ctx, d, func(on pgdb.DBTX) ([]driver.Balance, error) { return d.balances(ctx, on, skus) })
	return balances, sqlerr.Unwritten(err)
}

func (d *database) balances(ctx context.Context, on pgdb.DBTX, skus []string) ([]driver.Balance, error) {
	rows, err := d.q.Balances(ctx, on, len(skus) == 0, skus)
	balances := make([]driver.Balance, len(rows))
	for i, r := range rows {
		balances[i] = driver.Balance{
			SKU: r.Sku, Available: r.Available, Allotted: r.Allotted, Held: r.Held, Sold: r.Sold, Restocked: r.Restocked,
		}
	}
	return balances, err
}

// LimitedSKUs reads which SKUs have limits.
func (d *database) LimitedSKUs(ctx context.Context, skus []string) ([]string, error) {
	limited, err := alone(ctx, d, func(on pgdb.DBTX) ([]string, error) { return d.q.LimitedSKUs(ctx, on, len(skus) == 0, skus) })
	return limited, sqlerr.Unwritten(err)
}
