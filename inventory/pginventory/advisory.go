package pginventory

import (
	"context"
	"crypto/sha256"
	"encoding/binary"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// advisory excludes those who sell in the same way. For whoever holds the row without the advisory
// lock, a merged batch or a restock say, it waits as direct does.
func (d *database) advisory(ctx context.Context, r engine.Row) (engine.Verdict, error) {
	return d.outright(ctx, func(on pgdb.DBTX) (engine.Verdict, error) {
		row, err := d.q.SellAdvisory(ctx, on, pgdb.SellAdvisoryParams{
			ReservationKey: r.Key, Sku: r.SKU, Buyer: r.Buyer, Qty: r.Qty, State: r.State, HoldUs: r.Hold.Microseconds(),
			AdvisoryKey: advisoryKey(d.chosen, r.SKU), LockTimeout: lockTimeout(ctx),
		})
		return seen(row.Sold, row.Enough), err
	})
}

// advisoryKey names an SKU among all advisory locks of the database, which everybody in it shares.
// Two that meet by chance refuse each other's buyers as busy, and nothing worse.
func advisoryKey(schema, sku string) int64 {
	sum := sha256.Sum256([]byte("dblock inventory\x00" + schema + "\x00" + sku))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}
