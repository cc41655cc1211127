package pginventory

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// Adjust runs fn in a transaction of its own.
func (d *database) Adjust(ctx context.Context, fn func(driver.AdjustTx) (bool, error)) error {
	conn, err := d.acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return postgres.InTx(ctx, conn, lockTimeout(ctx), func(tx pgx.Tx) (bool, error) { return fn(adjustTx{d, d.OnHost(tx)}) })
}

type adjustTx struct {
	d  *database
	on pgdb.DBTX
}

func (t adjustTx) InsertAdjustment(ctx context.Context, a driver.Adjustment) error {
	return t.d.q.InsertAdjustment(ctx, t.on, a.ID, a.SKU, a.Delta)
}

func (t adjustTx) AdjustStock(ctx context.Context, a driver.Adjustment) (bool, error) {
	n, err := t.d.q.AdjustStock(ctx, t.on, a.Delta, a.SKU, -a.Delta)
	return n == 1, err
}

func (t adjustTx) LockStock(ctx context.Context, sku string, wait bool) ([]driver.Bucket, error) {
	if wait {
		stock, err := t.d.lockStock(ctx, t.on, []string{sku})
		return stock[sku], err
	}
	rows, err := t.d.q.LockFreeStock(ctx, t.on, []string{sku})
	return driver.Each(rows, func(r pgdb.LockFreeStockRow) driver.Bucket { return driver.Bucket{Number: r.Bucket, Left: r.Available} }), err
}

func (t adjustTx) AddStock(ctx context.Context, units []driver.Units) error {
	skus, buckets, qtys := unitColumns(units)
	return t.d.q.AddStock(ctx, t.on, skus, buckets, qtys)
}

func (t adjustTx) TakeStock(ctx context.Context, units []driver.Units) error {
	skus, buckets, qtys := unitColumns(units)
	return t.d.q.TakeStock(ctx, t.on, skus, buckets, qtys)
}

func (t adjustTx) Balance(ctx context.Context, sku string) (driver.Balance, error) {
	books, err := t.d.balances(ctx, t.on, []string{sku})
	if err != nil || len(books) == 0 {
		return driver.Balance{SKU: sku}, err
	}
	return books[0], nil
}

func (t adjustTx) QuotaDrifts(ctx context.Context, sku string) ([]driver.Count, error) {
	rows, err := t.d.q.QuotaDrifts(ctx, t.on, sku)
	return driver.Each(rows, func(r pgdb.QuotaDriftsRow) driver.Count {
		return driver.Count{Quota: driver.Quota{SKU: sku, Buyer: r.Buyer}, Qty: r.Drift, Limit: r.Counts}
	}), err
}

func (t adjustTx) LockQuotas(ctx context.Context, quotas []driver.Quota) error {
	skus, buyers := quotaColumns(quotas)
	if err := t.d.q.AddQuotas(ctx, t.on, skus, buyers); err != nil {
		return err
	}
	_, err := t.d.q.LockQuotas(ctx, t.on, skus, buyers)
	return err
}

func (t adjustTx) CountQuotas(ctx context.Context, counts []driver.Count) error {
	skus, buyers, qtys, mosts := countColumns(counts)
	return t.d.q.CountQuotas(ctx, t.on, pgdb.CountQuotasParams{Skus: skus, Buyers: buyers, Qtys: qtys, Mosts: mosts})
}

func (t adjustTx) UncountQuotas(ctx context.Context, counts []driver.Count) error {
	skus, buyers, qtys, _ := countColumns(counts)
	return t.d.q.UncountQuotas(ctx, t.on, skus, buyers, qtys)
}

// Adjustment returns what is recorded under id.
func (d *database) Adjustment(ctx context.Context, id string) (driver.Adjustment, bool, error) {
	r, err := alone(ctx, d, func(on pgdb.DBTX) (pgdb.AdjustmentRow, error) {
		r, err := d.q.Adjustment(ctx, on, id)
		if err != nil {
			return r, sqlerr.Unwritten(err)
		}
		if r.Unconfirmed {
			err = d.q.ConfirmCommits(ctx, on)
		}
		return r, err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return driver.Adjustment{}, false, nil
	}
	return driver.Adjustment{ID: id, SKU: r.Sku, Delta: r.Delta}, err == nil, err
}
