package pginventory

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
	"github.com/dblock-go/dblock/pglock"
)

// Allot moves units in one statement.
func (d *database) Allot(ctx context.Context, sku string, bucket int32, units int64) (int64, error) {
	left, err := alone(ctx, d, func(on pgdb.DBTX) (int64, error) {
		return d.q.Allot(ctx, on, pgdb.AllotParams{LockTimeout: lockTimeoutMs(ctx), Units: units, Sku: sku, Bucket: bucket})
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return left, err
}

// Allotted returns what is left in allotments.
func (d *database) Allotted(ctx context.Context) ([]driver.Units, error) {
	rows, err := alone(ctx, d, func(on pgdb.DBTX) ([]pgdb.AllottedRow, error) { return d.q.Allotted(ctx, on) })
	return driver.Each(rows, func(r pgdb.AllottedRow) driver.Units {
		return driver.Units{SKU: r.Sku, Bucket: r.Bucket, Qty: r.Available}
	}), sqlerr.Unwritten(err)
}

// Locker makes a Locker of leases.
func (d *database) Locker(ctx context.Context) (dblock.Locker, error) {
	return pglock.NewLeaseLocker(ctx, d.pool, pglock.LeaseOptions{Schema: d.chosen})
}
