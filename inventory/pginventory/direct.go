package pginventory

import (
	"context"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// direct sells in one statement, in autocommit.
func (d *database) direct(ctx context.Context, r engine.Row) (engine.Verdict, error) {
	conn, err := d.acquire(ctx)
	if err != nil {
		return engine.TooFew, err
	}
	defer conn.Release()
	n, err := d.q.SellOne(ctx, d.OnHost(conn), pgdb.SellOneParams{
		ReservationKey: r.Key, Sku: r.SKU, Buyer: r.Buyer, Qty: r.Qty, State: r.State, HoldUs: r.Hold.Microseconds(), LockTimeout: lockTimeoutMs(ctx), KeyTimeout: keyTimeout,
	})
	if n == 1 {
		return engine.Sold, orKeyOpen(err)
	}
	return engine.TooFew, orKeyOpen(err)
}
