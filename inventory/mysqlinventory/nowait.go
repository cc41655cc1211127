package mysqlinventory

import (
	"context"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/mysqlfault"
	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// noWait asks for the row before it writes anything: most of those who ask are refused.
func (d *database) noWait(ctx context.Context, r engine.Row) (engine.Verdict, error) {
	return d.outright(ctx, func(on mysqldb.DBTX) (engine.Verdict, error) {
		held, err := d.q.HoldNoWait(ctx, on, []byte(r.SKU), r.Qty)
		switch {
		case mysqlfault.IsLocked(err): // NOWAIT found it so
			return engine.Taken, nil
		case err != nil || len(held) == 0:
			return engine.TooFew, err
		}
		return d.writeOne(ctx, on, r, 0)
	})
}
