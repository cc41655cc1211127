package pginventory

import (
	"context"

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
	n, err := d.q.SellOne(ctx, d.on(conn), r.Qty, r.SKU, r.Key, r.Buyer)
	return n == 1, err
}
