package bench

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/inventory"
)

// PlainSale is a way to sell that is recommended everywhere, in plain SQL and in its best form. It is here to be compared with
// package inventory: it sells in the tables of that package, one order in one transaction, and knows no repeated key, no hold and no limit.
type PlainSale struct {
	Name  string
	About string // in a line

	// SellsAll says that buyers wait for each other. In the other ways an order that meets another one is refused with
	// dblock.ErrBusy: nothing is written, and units may be left.
	SellsAll bool

	onPostgres postgresSell
	onMySQL    mysqlSell // nil: only Postgres has it
	spread     bool      // over plainBuckets
}

var plainSales = []PlainSale{
	{"forupdate", "SELECT FOR UPDATE, the order, UPDATE", true, postgresForUpdate, mysqlForUpdate, false},
	{"nowait", "FOR UPDATE NOWAIT, or the buyer is refused", false, postgresNoWait, mysqlNoWait, false},
	{"skiplocked", "FOR UPDATE SKIP LOCKED over 16 buckets, or the buyer is refused", false, postgresSkipLocked, mysqlSkipLocked, true},
	{"cas", "UPDATE if no other order was faster, 5 attempts, or the buyer is refused", false, postgresCAS, mysqlCAS, false},
	{"advisory", "UPDATE if pg_try_advisory_xact_lock is true, or the buyer is refused", false, postgresAdvisory, nil, false},
}

// PlainSales lists the ways that a kind of server has.
func PlainSales(kind devdb.Kind) []PlainSale {
	return slices.DeleteFunc(slices.Clone(plainSales), func(p PlainSale) bool { return p.onMySQL == nil && kind != devdb.Postgres })
}

// plainBuckets is how many rows an SKU has where orders pass over locked ones.
const plainBuckets = 16

// casAttempts is how often an order is tried that meets a faster one, and casPause is the first pause between attempts, at most.
const (
	casAttempts = 5
	casPause    = 5 * time.Millisecond
)

// PlainShop sells by a PlainSale. The Store takes deliveries and reads the books.
type PlainShop struct {
	*inventory.Store
	spread func(ctx context.Context, sku string, share int64) error // from the first bucket to the others
	sell   func(ctx context.Context, r inventory.Request) error
}

// Restock spreads what comes in over as many rows as the way sells from.
func (p *PlainShop) Restock(ctx context.Context, a inventory.Adjustment) (bool, error) {
	replayed, err := p.Store.Restock(ctx, a)
	if err == nil && p.spread != nil && !replayed {
		err = p.spread(ctx, a.SKU, a.Delta/plainBuckets)
	}
	return replayed, err
}

// Reserve sells an order whose key is new: its Key, SKU, Buyer and Qty count.
func (p *PlainShop) Reserve(ctx context.Context, r inventory.Request) (inventory.Reservation, error) {
	if err := p.sell(ctx, r); err != nil {
		return inventory.Reservation{}, err
	}
	return inventory.Reservation{Key: r.Key, SKU: r.SKU, Buyer: r.Buyer, Qty: r.Qty, State: inventory.ReservationSold}, nil
}

// busyOrSoldOut is why nothing was sold.
func busyOrSoldOut(enough bool) error {
	if enough {
		return dblock.ErrBusy
	}
	return inventory.ErrSoldOut
}

// swapped tries an order again that met a faster one.
func swapped(ctx context.Context, attempt func() error) error {
	for n := 1; ; n++ {
		err := attempt()
		if n == casAttempts || !errors.Is(err, dblock.ErrBusy) {
			return err
		}
		select {
		case <-time.After(rand.N(casPause << (n - 1))):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
