package pginventory

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/pgfault"
	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// notNegative is the check of the stock that fails where more is taken than is left. The server's
// log shows it, too.
const notNegative = "dblock_stock_not_negative"

func (d *database) together(ctx context.Context, o engine.Orders) (verdict engine.Verdict, left int64, err error) {
	verdict, err = d.outright(ctx, func(on pgdb.DBTX) (engine.Verdict, error) {
		left, err = d.q.SellTogether(ctx, on, pgdb.SellTogetherParams{
			Sku: o.SKU, LockTimeout: lockTimeout(ctx), ReservationKeys: o.Keys, Buyers: o.Buyers, Qtys: o.Qtys,
		})
		if pgfault.Violates(err, notNegative) || errors.Is(err, pgx.ErrNoRows) { // or there is no such SKU
			return engine.TooFew, nil
		}
		return engine.Sold, err
	})
	return verdict, left, err
}
