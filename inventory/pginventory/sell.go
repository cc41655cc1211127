package pginventory

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// What fails if too little is left. The server's log shows it, too.
const (
	notNegative = "dblock_stock_not_negative" // the check of the stock: more is taken than is left
	noStock     = "sku"                       // the column that is NULL: there is no such stock
)

// Sell has three ways: one statement in autocommit for one order, a transaction of two for many,
// and one that leaves out what is recorded, or over a limit.
func (d *database) Sell(ctx context.Context, o driver.Orders) (driver.Sale, error) {
	sale := driver.Sale{Left: -1}
	conn, err := d.acquire(ctx)
	if err != nil {
		return sale, err
	}
	defer conn.Release()
	if len(o.Keys) == 1 && o.Limit == 0 && o.Bucket == 0 && !o.OnlyNew {
		n, err := d.q.SellOne(ctx, d.OnHost(conn), pgdb.SellOneParams{
			ReservationKey: o.Keys[0], Sku: o.SKU, Buyer: o.Buyers[0], Qty: o.Qtys[0], State: o.State, HoldUs: o.Hold.Microseconds(),
			LockTimeout: lockTimeoutMs(ctx), KeyTimeout: keyTimeout,
		})
		sale.Sold = n == 1
		return sale, orKeyOpen(err)
	}
	var trip statements
	trip.add(bound, lockTimeoutMs(ctx))
	written := true // it waits for no key any more, but for the stock
	if o.OnlyNew {
		trip.query(pgdb.SellNew, one(&sale.Left, &sale.Unsold), o.Keys, o.Buyers, o.Qtys, o.SKU, o.Bucket, o.Limit, o.State, o.Hold.Microseconds())
	} else {
		written = o.Limit > 0 // quotas are not keys
		trip.addSellAll(o, &sale, &written)
	}
	err = d.inBatch(conn)(ctx, trip)
	switch {
	case postgres.Violates(err, notNegative), postgres.LacksValue(err, noStock), errors.Is(err, pgx.ErrNoRows):
		return driver.Sale{Left: -1}, nil
	case !written:
		err = orKeyOpen(err)
	}
	sale.Sold = err == nil // which counts once the transaction has ended
	return sale, err
}

func (s *statements) addSellAll(o driver.Orders, sale *driver.Sale, written *bool) {
	var units int64
	for _, qty := range o.Qtys {
		units += qty
	}
	if o.Limit > 0 {
		args := []any{o.SKU, o.Limit, o.Buyers, o.Qtys}
		*s = append(*s, statement{sql: pgdb.InsertQuotas, args: args, done: func(string) { *written = false }})
	}
	args := []any{o.Keys, o.SKU, o.Bucket, o.Buyers, o.Qtys, o.State, o.Limit > 0, o.Hold.Microseconds()}
	*s = append(*s, statement{sql: pgdb.InsertOrders, args: args, done: func(string) { *written = true }})
	s.query(pgdb.TakeBatch, one(&sale.Left), units, o.SKU, o.Bucket)
}
