package pginventory

import (
	"context"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/pgfault"
	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// noWait is refused by the server where the row is locked, with an error that its log shows too.
func (d *database) noWait(ctx context.Context, r engine.Row) (engine.Verdict, error) {
	return d.outright(ctx, func(on pgdb.DBTX) (engine.Verdict, error) {
		n, err := d.q.SellNoWait(ctx, on, pgdb.SellNoWaitParams{
			ReservationKey: r.Key, Sku: r.SKU, Buyer: r.Buyer, Qty: r.Qty, State: r.State, HoldUs: r.Hold.Microseconds(), LockTimeout: lockTimeout(ctx),
		})
		if pgfault.IsLocked(err) {
			return engine.Taken, nil
		}
		return soldIf(n == 1, engine.TooFew), err
	})
}
