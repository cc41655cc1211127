package mysqlinventory

import (
	"context"
	"database/sql"
	"errors"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// cas reads without a lock, in READ COMMITTED: a second attempt in a REPEATABLE READ transaction
// would read the same old row again, for ever.
func (d *database) cas(ctx context.Context, r engine.Row) (engine.Verdict, error) {
	return d.outright(ctx, func(on mysqldb.DBTX) (engine.Verdict, error) {
		saw, err := d.q.SeeStock(ctx, on, []byte(r.SKU))
		if errors.Is(err, sql.ErrNoRows) {
			return engine.TooFew, nil
		}
		if err != nil || saw.Available < r.Qty {
			return engine.TooFew, err
		}
		n, err := d.q.TakeSeen(ctx, on, mysqldb.TakeSeenParams{
			LeftAfter: saw.Available - r.Qty, Sku: []byte(r.SKU), SeenAvailable: saw.Available, SeenEpoch: saw.Epoch,
		})
		if n != 1 {
			return engine.Taken, err
		}
		return engine.Sold, d.insertAtOnce(ctx, on, []engine.Row{r})
	})
}
