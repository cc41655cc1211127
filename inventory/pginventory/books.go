package pginventory

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// Lookup returns what is recorded under key.
func (d *database) Lookup(ctx context.Context, key string) ([]engine.Row, error) {
	found, err := d.q.Reservations(ctx, d.on(d.pool), []string{key})
	rows := make([]engine.Row, len(found))
	for i, r := range found {
		rows[i] = row(r)
	}
	return rows, fault.NoWrite(err)
}

// Balances reads the books in one statement, and so in one snapshot.
func (d *database) Balances(ctx context.Context, skus []string) ([]engine.Balance, error) {
	balances, err := d.balances(ctx, d.on(d.pool), skus)
	return balances, fault.NoWrite(err)
}

func (d *database) balances(ctx context.Context, on pgdb.DBTX, skus []string) ([]engine.Balance, error) {
	rows, err := d.q.Balances(ctx, on, len(skus) == 0, skus)
	balances := make([]engine.Balance, len(rows))
	for i, r := range rows {
		balances[i] = engine.Balance{
			SKU: r.Sku, Available: r.Available, Allotted: r.Allotted, Held: r.Held, Sold: r.Sold, Restocked: r.Restocked,
		}
	}
	return balances, err
}

// Keys reads the stock and the keys of an SKU in one round trip and one snapshot.
func (d *database) Keys(ctx context.Context, sku string, limit int) (got engine.Keys, err error) {
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return got, fault.NoWrite(err)
	}
	defer conn.Release() // which closes it where the transaction is still open
	var batch pgx.Batch
	batch.Queue(beginSnapshot)
	batch.Queue(d.sql(pgdb.StockOf), sku).QueryRow(func(row pgx.Row) error { return row.Scan(&got.Left, &got.Epoch) })
	batch.Queue(d.sql(pgdb.KeysOf), sku, int32(limit)).Query(func(rows pgx.Rows) (err error) {
		got.Keys, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	batch.Queue("commit")
	return got, fault.NoWrite(conn.SendBatch(ctx, &batch).Close())
}
