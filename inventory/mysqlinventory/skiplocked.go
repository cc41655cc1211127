package mysqlinventory

import (
	"context"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/inventory/internal/engine"
)

func (d *database) skipLocked(ctx context.Context, r engine.Row, first int32) (engine.Verdict, error) {
	return d.outright(ctx, func(on mysqldb.DBTX) (engine.Verdict, error) {
		held, err := d.q.HoldFreeFrom(ctx, on, []byte(r.SKU), first, r.Qty)
		if err == nil && len(held) == 0 && first > 0 {
			held, err = d.q.HoldFreeBefore(ctx, on, []byte(r.SKU), first, r.Qty)
		}
		if err != nil {
			return engine.TooFew, err
		}
		if len(held) > 0 {
			return d.writeOne(ctx, on, r, held[0])
		}
		n, err := d.q.BucketsWith(ctx, on, []byte(r.SKU), r.Qty)
		if n > 0 {
			return engine.Taken, err
		}
		return engine.TooFew, err
	})
}
