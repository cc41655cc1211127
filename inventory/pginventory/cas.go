package pginventory

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// cas reads in one statement and writes in another, each in autocommit: nothing is locked while the
// client looks at what it read.
func (d *database) cas(ctx context.Context, r engine.Row) (engine.Verdict, error) {
	return d.outright(ctx, func(on pgdb.DBTX) (engine.Verdict, error) {
		saw, err := d.q.SeeStock(ctx, on, r.SKU)
		if errors.Is(err, pgx.ErrNoRows) {
			return engine.TooFew, nil
		}
		if err != nil || saw.Available < r.Qty {
			return engine.TooFew, fault.NoWrite(err)
		}
		n, err := d.q.SellSeen(ctx, on, pgdb.SellSeenParams{
			ReservationKey: r.Key, Sku: r.SKU, Buyer: r.Buyer, Qty: r.Qty, State: r.State, HoldUs: r.Hold.Microseconds(), LeftAfter: saw.Available - r.Qty,
			SeenAvailable: saw.Available, SeenEpoch: saw.Epoch, LockTimeout: lockTimeout(ctx),
		})
		return soldIf(n == 1, engine.Taken), err
	})
}
