package pginventory

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/internal/pgfault"
	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// notNegative is the check of the stock that fails where more is taken than is left. The server's
// log shows it, too.
const notNegative = "dblock_stock_not_negative"

func (d *database) together(ctx context.Context, o engine.Orders) (verdict engine.Verdict, left int64, err error) {
	verdict, err = d.atOnce(ctx, func(row pgx.Row) error { return row.Scan(&left) },
		pgdb.SellTogether, o.SKU, o.Bucket, o.Keys, o.Buyers, o.Qtys, o.State, o.Hold.Microseconds())
	return verdict, left, err
}

func (d *database) new(ctx context.Context, o engine.Orders) (verdict engine.Verdict, unsold []string, left int64, err error) {
	verdict, err = d.atOnce(ctx, func(row pgx.Row) error { return row.Scan(&left, &unsold) },
		pgdb.SellNew, o.Keys, o.Buyers, o.Qtys, o.SKU, o.Bucket, o.Limit, o.State, o.Hold.Microseconds())
	return verdict, unsold, left, err
}

// atOnce sells by one statement, in a transaction of its own that takes one round trip. What was sold counts once the transaction
// has ended, which is when the batch is closed.
func (d *database) atOnce(ctx context.Context, scan func(pgx.Row) error, query string, args ...any) (engine.Verdict, error) {
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return engine.TooFew, fault.NoWrite(err)
	}
	defer conn.Release()
	var batch pgx.Batch
	batch.Queue(bound, lockTimeout(ctx))
	batch.Queue(d.sql(query), args...).QueryRow(scan)
	err = conn.SendBatch(ctx, &batch).Close()
	if pgfault.Violates(err, notNegative) || errors.Is(err, pgx.ErrNoRows) { // too little, or no such SKU
		return engine.TooFew, nil
	}
	return engine.Sold, err
}
