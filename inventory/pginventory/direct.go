package pginventory

import (
	"context"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/inventory/internal/engine"
)

func (d *database) direct(ctx context.Context, r engine.Row) (engine.Verdict, error) {
	return d.outright(ctx, func(on pgdb.DBTX) (engine.Verdict, error) {
		n, err := d.q.SellOne(ctx, on, pgdb.SellOneParams{
			ReservationKey: r.Key, Sku: r.SKU, Buyer: r.Buyer, Qty: r.Qty, State: r.State, HoldUs: r.Hold.Microseconds(), LockTimeout: lockTimeout(ctx), KeyTimeout: keyTimeout,
		})
		return soldIf(n == 1, engine.TooFew), orKeyOpen(err)
	})
}

// outright sells on a connection of its own, in autocommit.
func (d *database) outright(
	ctx context.Context, sell func(pgdb.DBTX) (engine.Verdict, error),
) (engine.Verdict, error) {
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return engine.TooFew, fault.NoWrite(err)
	}
	defer conn.Release()
	return sell(d.on(conn))
}

func soldIf(sold bool, otherwise engine.Verdict) engine.Verdict {
	if sold {
		return engine.Sold
	}
	return otherwise
}
