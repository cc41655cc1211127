package mysqlinventory

import (
	"context"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// direct is one conditional UPDATE and its order row in one transaction. The row goes in first, so
// that the hot row is locked for no longer than the commit takes. If nothing is sold, the transaction is rolled back.
func (d *database) direct(ctx context.Context, r driver.Row) (verdict driver.Verdict, err error) {
	err = d.inTx(ctx, func(on mysqldb.DBTX) (bool, error) {
		verdict = driver.TooFew
		if err := d.insertAtOnce(ctx, on, []driver.Row{r}); err != nil {
			return false, err
		}
		if driver.IsBrief(ctx) && !d.db.MariaDB {
			if _, err := d.q.HoldNoWait(ctx, on, []byte(r.SKU), r.Qty); err != nil {
				return false, err
			}
		}
		n, err := d.q.TakeOne(ctx, on, r.Qty, []byte(r.SKU), r.Qty)
		if n == 1 {
			verdict = driver.Sold
		}
		return n == 1, err
	})
	return verdict, err
}
