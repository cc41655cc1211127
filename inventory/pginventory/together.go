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
			Sku: o.SKU, Bucket: o.Bucket, LockTimeout: lockTimeout(ctx), ReservationKeys: o.Keys, Buyers: o.Buyers, Qtys: o.Qtys,
			State: o.State, HoldUs: o.Hold.Microseconds(),
		})
		return soldUnless(err)
	})
	return verdict, left, err
}

// soldUnless tells that there was enough, and such an SKU.
func soldUnless(err error) (engine.Verdict, error) {
	if pgfault.Violates(err, notNegative) || errors.Is(err, pgx.ErrNoRows) {
		return engine.TooFew, nil
	}
	return engine.Sold, err
}

func (d *database) new(ctx context.Context, o engine.Orders) (verdict engine.Verdict, unsold []string, left int64, err error) {
	verdict, err = d.outright(ctx, func(on pgdb.DBTX) (engine.Verdict, error) {
		got, err := d.q.SellNew(ctx, on, pgdb.SellNewParams{
			Sku: o.SKU, Bucket: o.Bucket, LockTimeout: lockTimeout(ctx), ReservationKeys: o.Keys, Buyers: o.Buyers, Qtys: o.Qtys,
			State: o.State, HoldUs: o.Hold.Microseconds(), Most: o.Limit,
		})
		unsold, left = got.Unsold, got.Available
		return soldUnless(err)
	})
	return verdict, unsold, left, err
}
