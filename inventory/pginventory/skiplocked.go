package pginventory

import (
	"context"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/inventory/internal/engine"
)

func (d *database) skipLocked(ctx context.Context, r engine.Row, first int32) (engine.Verdict, error) {
	return d.outright(ctx, func(on pgdb.DBTX) (engine.Verdict, error) {
		row, err := d.q.SellSkipLocked(ctx, on, pgdb.SellSkipLockedParams{
			ReservationKey: r.Key, Sku: r.SKU, Buyer: r.Buyer, Qty: r.Qty, State: r.State, HoldUs: r.Hold.Microseconds(), FirstBucket: first, LockTimeout: lockTimeout(ctx),
		})
		return seen(row.Sold, row.Enough), err
	})
}

// seen is the verdict of a statement that passes over what is locked.
func seen(sold, enough bool) engine.Verdict {
	if enough {
		return soldIf(sold, engine.Taken)
	}
	return soldIf(sold, engine.TooFew)
}
