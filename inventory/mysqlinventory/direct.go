package mysqlinventory

import (
	"context"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// direct is one conditional UPDATE and its order row in one transaction. The row goes in first, so
// that the hot row is locked for no longer than the commit takes.
func (d *database) direct(ctx context.Context, r engine.Row) (engine.Verdict, error) {
	return d.outright(ctx, func(on mysqldb.DBTX) (engine.Verdict, error) {
		return d.writeOne(ctx, on, r, 0)
	})
}

// outright sells in a transaction of its own. One that sells nothing is rolled back.
func (d *database) outright(
	ctx context.Context, sell func(mysqldb.DBTX) (engine.Verdict, error),
) (verdict engine.Verdict, err error) {
	err = d.inTx(ctx, func(on mysqldb.DBTX) (bool, error) {
		verdict, err = sell(on)
		return verdict == engine.Sold, err
	})
	return verdict, err
}

// writeOne writes the order and takes its units from one bucket.
func (d *database) writeOne(ctx context.Context, on mysqldb.DBTX, r engine.Row, bucket int32) (engine.Verdict, error) {
	r.Bucket = bucket
	if err := d.insertAtOnce(ctx, on, []engine.Row{r}); err != nil {
		return engine.TooFew, err
	}
	if engine.IsBrief(ctx) && !d.pool.MariaDB {
		if _, err := d.q.HoldNoWait(ctx, on, []byte(r.SKU), r.Qty); err != nil {
			return engine.TooFew, err
		}
	}
	n, err := d.q.TakeOne(ctx, on, mysqldb.TakeOneParams{Qty: r.Qty, Sku: []byte(r.SKU), Bucket: bucket, Least: r.Qty})
	if n != 1 {
		return engine.TooFew, err
	}
	return engine.Sold, err
}
