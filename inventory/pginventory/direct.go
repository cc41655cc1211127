package pginventory

import (
	"context"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// direct sells in one statement, in autocommit.
func (d *database) direct(ctx context.Context, r driver.Row) (driver.Verdict, error) {
	conn, err := d.acquire(ctx)
	if err != nil {
		return driver.TooFew, err
	}
	defer conn.Release()
	n, err := d.q.SellOne(ctx, d.OnHost(conn), pgdb.SellOneParams{
		ReservationKey: r.Key, Sku: r.SKU, Buyer: r.Buyer, Qty: r.Qty, State: r.State, HoldUs: r.Hold.Microseconds(), LockTimeout: lockTimeoutMs(ctx), KeyTimeout: keyTimeout,
	})
	if n == 1 {
		return driver.Sold, orKeyOpen(err)
	}
	return driver.TooFew, orKeyOpen(err)
}
