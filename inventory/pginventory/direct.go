package pginventory

import (
	"context"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// SellOne is one statement in autocommit: one round trip and one flush. The stock is taken first,
// so that nothing is written where there is too little.
func (d *database) SellOne(ctx context.Context, r engine.Row) (bool, error) {
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return false, engine.NoWrite(err)
	}
	defer conn.Release()
	n, err := d.q.SellOne(ctx, d.on(conn), pgdb.SellOneParams{
		ReservationKey: r.Key, Sku: r.SKU, Buyer: r.Buyer, Qty: r.Qty, LockTimeout: lockTimeout(ctx),
	})
	return n == 1, err
}
