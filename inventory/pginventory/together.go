package pginventory

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// What fails if a batch can't be sold together. The server's log shows it, too.
const (
	notNegative = "dblock_stock_not_negative" // the check of the stock: more is taken than is left
	quotaUsed   = "dblock_quota_used"         // the check of a quota: a buyer would have more than the limit
	quotaKey    = "dblock_quota_pkey"         // a buyer had taken some before
	noStock     = "sku"                       // the column that is NULL: there is no such stock
)

func (d *database) together(ctx context.Context, o driver.Orders) (verdict driver.Verdict, left int64, err error) {
	var units int64
	for _, qty := range o.Qtys {
		units += qty
	}
	sent, done := 0, 0 // statements that write quotas or orders
	verdict, err = d.atOnce(ctx, func(batch *pgx.Batch) {
		write := func(query string, args ...any) {
			sent++
			batch.Queue(d.SQL(query), args...).Exec(func(pgconn.CommandTag) error { done++; return nil })
		}
		if len(o.Make) > 0 {
			write(pgdb.MakeQuotas, slices.Repeat([]string{o.SKU}, len(o.Make)), o.Make)
		}
		if len(o.First.Buyers) > 0 {
			write(pgdb.InsertQuotas, o.SKU, o.First.Buyers, o.First.Units, o.Limit)
		}
		if len(o.More.Buyers) > 0 {
			write(pgdb.AddToQuotas, o.SKU, o.More.Buyers, o.More.Units, o.Limit)
		}
		write(pgdb.InsertOrders, o.Keys, o.SKU, o.Bucket, o.Buyers, o.Qtys, o.State, o.Limit > 0, o.Hold.Microseconds())
		batch.Queue(d.SQL(pgdb.TakeTogether), units, o.SKU, o.Bucket).QueryRow(func(row pgx.Row) error { return row.Scan(&left) })
	})
	if done == sent-1 { // it waited to write the orders, and not for the stock
		err = orKeyOpen(err)
	}
	return verdict, left, err
}

func (d *database) new(ctx context.Context, o driver.Orders) (verdict driver.Verdict, unsold []string, left int64, err error) {
	verdict, err = d.atOnce(ctx, func(batch *pgx.Batch) {
		if len(o.Make) > 0 {
			batch.Queue(d.SQL(pgdb.MakeQuotas), slices.Repeat([]string{o.SKU}, len(o.Make)), o.Make)
		}
		batch.Queue(d.SQL(pgdb.SellNew), o.Keys, o.Buyers, o.Qtys, o.SKU, o.Bucket, o.Limit, o.State, o.Hold.Microseconds()).
			QueryRow(func(row pgx.Row) error { return row.Scan(&left, &unsold) })
	})
	return verdict, unsold, left, err
}

// atOnce sells in a transaction that takes one round trip. What was sold counts once that has ended, which is when the batch is closed.
func (d *database) atOnce(ctx context.Context, queue func(*pgx.Batch)) (driver.Verdict, error) {
	conn, err := d.acquire(ctx)
	if err != nil {
		return driver.TooFew, err
	}
	defer conn.Release()
	var batch pgx.Batch
	batch.Queue(bound, lockTimeoutMs(ctx))
	queue(&batch)
	err = conn.SendBatch(ctx, &batch).Close()
	switch {
	case postgres.Violates(err, notNegative), postgres.LacksValue(err, noStock), errors.Is(err, pgx.ErrNoRows):
		return driver.TooFew, nil
	case postgres.Violates(err, quotaUsed):
		return driver.OverLimit, nil
	case postgres.Violates(err, quotaKey):
		return driver.NotNew, nil
	}
	return driver.Sold, err
}
