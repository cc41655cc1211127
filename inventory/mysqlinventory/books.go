package mysqlinventory

import (
	"context"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// Lookup returns what is recorded under key.
func (d *database) Lookup(ctx context.Context, key string) ([]engine.Row, error) {
	found, err := d.recorded(ctx, d.on(d.pool), []string{key})
	return found[key], sqlerr.Unwritten(err)
}

// Balances reads the books in one statement, and so in one snapshot.
func (d *database) Balances(ctx context.Context, skus []string) ([]engine.Balance, error) {
	balances, err := d.balances(ctx, d.on(d.pool), skus)
	return balances, sqlerr.Unwritten(err)
}

func (d *database) balances(ctx context.Context, on mysqldb.DBTX, skus []string) ([]engine.Balance, error) {
	var every int64
	if len(skus) == 0 {
		every = 1
	}
	rows, err := d.q.Balances(ctx, on, mysqldb.BalancesParams{Every: every, Skus: blobs(skus)})
	balances := make([]engine.Balance, len(rows))
	for i, r := range rows {
		balances[i] = engine.Balance{
			SKU: string(r.Sku), Available: r.Available, Allotted: r.Allotted, Held: r.Held, Sold: r.Sold, Restocked: r.Restocked,
		}
	}
	return balances, err
}
