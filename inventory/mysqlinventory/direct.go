package mysqlinventory

import (
	"context"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// SellOne is one conditional UPDATE and its order row in one transaction. The row goes in first,
// so that the hot row is locked for no longer than the commit takes.
func (d *database) SellOne(ctx context.Context, r engine.Row) (sold bool, err error) {
	err = d.inTx(ctx, func(on mysqldb.DBTX) (bool, error) {
		if err := d.q.InsertReservation(ctx, on, mysqldb.InsertReservationParams{
			ReservationKey: []byte(r.Key), Sku: []byte(r.SKU), Buyer: []byte(r.Buyer), Qty: r.Qty,
		}); err != nil {
			return false, err
		}
		n, err := d.q.TakeOne(ctx, on, r.Qty, []byte(r.SKU), r.Qty)
		sold = n == 1
		return sold, err
	})
	return sold && err == nil, err
}
