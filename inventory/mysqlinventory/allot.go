package mysqlinventory

import (
	"context"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
	"github.com/dblock-go/dblock/mysqllock"
)

// Allot moves units in a transaction of its own, which locks the rows in the order of their
// numbers.
func (d *database) Allot(ctx context.Context, sku string, bucket int32, units int64) (left int64, err error) {
	err = d.inTx(ctx, func(on mysqldb.DBTX) (bool, error) {
		there, err := d.q.LockBucket(ctx, on, []byte(sku), 0)
		if err != nil || len(there) == 0 || there[0].Available == 0 {
			return false, err
		}
		units = min(units, there[0].Available)
		own, err := d.q.LockBucket(ctx, on, []byte(sku), bucket)
		if err != nil {
			return false, err
		}
		if left = units; len(own) > 0 {
			left += own[0].Available
		}
		if err := repeat(ctx, on, mysqldb.TakeStock, []driver.Units{{SKU: sku, Qty: units}}, unitArgs); err != nil {
			return false, err
		}
		return true, repeat(ctx, on, mysqldb.AddStock, []driver.Units{{SKU: sku, Bucket: bucket, Qty: units}}, unitArgs)
	})
	return left, err
}

// Allotted returns what is left in allotments.
func (d *database) Allotted(ctx context.Context) ([]driver.Units, error) {
	rows, err := d.q.Allotted(ctx, d.db.On(d.db))
	return driver.Each(rows, func(r mysqldb.AllottedRow) driver.Units {
		return driver.Units{SKU: string(r.Sku), Bucket: r.Bucket, Qty: r.Available}
	}), sqlerr.Unwritten(err)
}

// Locker makes a Locker of leases.
func (d *database) Locker(ctx context.Context) (dblock.Locker, error) {
	return mysqllock.NewLeaseLocker(ctx, d.db.DB, mysqllock.LeaseOptions{Schema: d.db.Schema})
}
