package mysqlinventory

import (
	"context"
	"database/sql"
	"errors"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// Adjust runs fn in a transaction of its own.
func (d *database) Adjust(ctx context.Context, fn func(driver.AdjustTx) (bool, error)) error {
	return d.inTx(patiently(ctx), func(on mysqldb.DBTX) (bool, error) {
		return fn(adjustTx{d, on})
	})
}

type adjustTx struct {
	d  *database
	on mysqldb.DBTX
}

func (t adjustTx) InsertAdjustment(ctx context.Context, a driver.Adjustment) error {
	return t.d.q.InsertAdjustment(ctx, t.on, []byte(a.ID), []byte(a.SKU), a.Delta)
}

func (t adjustTx) AdjustStock(ctx context.Context, a driver.Adjustment) (bool, error) {
	n, err := t.d.q.AdjustStock(ctx, t.on, a.Delta, []byte(a.SKU), -a.Delta)
	return n == 1, err
}

func (t adjustTx) LockStock(ctx context.Context, sku string, wait bool) ([]driver.Bucket, error) {
	query := mysqldb.LockFreeStock
	if wait {
		query = mysqldb.LockStock
	}
	stock := make(map[string][]driver.Bucket, 1)
	err := lockStock(ctx, t.on, query, []string{sku}, stock)
	return stock[sku], err
}

func (t adjustTx) AddStock(ctx context.Context, units []driver.Units) error {
	return repeat(ctx, t.on, mysqldb.AddStock, units, unitArgs)
}

func (t adjustTx) TakeStock(ctx context.Context, units []driver.Units) error {
	return repeat(ctx, t.on, mysqldb.TakeStock, units, unitArgs)
}

func (t adjustTx) Balance(ctx context.Context, sku string) (driver.Balance, error) {
	books, err := t.d.balances(ctx, t.on, []string{sku})
	if err != nil || len(books) == 0 {
		return driver.Balance{SKU: sku}, err
	}
	return books[0], nil
}

func (t adjustTx) QuotaDrifts(ctx context.Context, sku string) ([]driver.Count, error) {
	rows, err := t.d.q.QuotaDrifts(ctx, t.on, []byte(sku), []byte(sku))
	return driver.Each(rows, func(r mysqldb.QuotaDriftsRow) driver.Count {
		return driver.Count{Quota: driver.Quota{SKU: sku, Buyer: string(r.Buyer)}, Qty: r.Drift, Limit: r.Counts}
	}), err
}

func (t adjustTx) LockQuotas(ctx context.Context, quotas []driver.Quota) error {
	return repeat(ctx, t.on, mysqldb.AddQuotas, quotas, quotaArgs)
}

func (t adjustTx) CountQuotas(ctx context.Context, counts []driver.Count) error {
	return repeat(ctx, t.on, mysqldb.CountQuotas, counts, countArgs)
}

func (t adjustTx) UncountQuotas(ctx context.Context, counts []driver.Count) error {
	return repeat(ctx, t.on, mysqldb.UncountQuotas, counts, uncountArgs)
}

// Adjustment returns what is recorded under id.
func (d *database) Adjustment(ctx context.Context, id string) (driver.Adjustment, bool, error) {
	r, err := d.q.Adjustment(ctx, d.db.On(d.db), []byte(id))
	if errors.Is(err, sql.ErrNoRows) {
		return driver.Adjustment{}, false, nil
	}
	return driver.Adjustment{ID: id, SKU: string(r.Sku), Delta: r.Delta}, err == nil, sqlerr.Unwritten(err)
}
