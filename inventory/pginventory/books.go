package pginventory

import (
	"context"

	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// Lookup returns what is recorded under key.
func (d *database) Lookup(ctx context.Context, key string) (engine.Row, bool, error) {
	rows, err := d.q.Reservations(ctx, d.on(d.pool), []string{key})
	if err != nil || len(rows) == 0 {
		return engine.Row{}, false, fault.NoWrite(err)
	}
	r := rows[0]
	return engine.Row{Key: r.ReservationKey, SKU: r.Sku, Buyer: r.Buyer, Qty: r.Qty, State: r.State}, true, nil
}

// Balances reads the books of every SKU in one statement, and so in one snapshot.
func (d *database) Balances(ctx context.Context) ([]engine.Balance, error) {
	rows, err := d.q.Balances(ctx, d.on(d.pool))
	if err != nil {
		return nil, fault.NoWrite(err)
	}
	balances := make([]engine.Balance, len(rows))
	for i, r := range rows {
		balances[i] = engine.Balance{SKU: r.Sku, Available: r.Available, Held: r.Held, Sold: r.Sold, Restocked: r.Restocked}
	}
	return balances, nil
}
