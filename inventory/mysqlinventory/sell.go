package mysqlinventory

import (
	"context"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// Sell is one conditional UPDATE and its order row in one transaction. The row goes in first, so
// that the hot row is locked for no longer than the commit takes. If nothing is sold, the
// transaction is rolled back. No statement here writes orders and takes stock: a batch is always a
// transaction of several, which locks the stock first and decides.
func (d *database) Sell(ctx context.Context, o driver.Orders) (driver.Sale, error) {
	sale := driver.Sale{Left: -1}
	r := driver.Row{Key: o.Keys[0], SKU: o.SKU, Buyer: o.Buyers[0], Qty: o.Qtys[0], State: o.State, Hold: o.Hold}
	err := d.inTx(ctx, func(on mysqldb.DBTX) (bool, error) {
		sale.Sold = false
		if err := d.insertAtOnce(ctx, on, []driver.Row{r}); err != nil {
			return false, err
		}
		if driver.IsBrief(ctx) && !d.db.MariaDB {
			if _, err := d.q.HoldNoWait(ctx, on, []byte(r.SKU), r.Qty); err != nil {
				return false, err
			}
		}
		n, err := d.q.TakeOne(ctx, on, r.Qty, []byte(r.SKU), r.Qty)
		sale.Sold = n == 1
		return n == 1, err
	})
	return sale, err
}
