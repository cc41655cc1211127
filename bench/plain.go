package bench

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/inventory"
)

// PlainSale is a way to sell that is recommended everywhere, in plain SQL and in its best form. It
// is here to be compared with package inventory: it sells in the tables of that package, one order
// in one transaction, and knows no repeated key, no hold and no limit.
type PlainSale struct {
	Name  string
	About string // in a line

	// SellsAll says that buyers wait for each other. In the other ways an order that meets another
	// one is refused with dblock.ErrBusy: nothing is written, and units may be left.
	SellsAll bool

	// Postgres and MySQL sell an order. MySQL may be nil: then only Postgres has this way.
	Postgres, MySQL PlainSell

	spread bool // over plainBuckets
}

// PlainSell sells one order, or returns inventory.ErrSoldOut or dblock.ErrBusy.
type PlainSell func(ctx context.Context, db *Database, r inventory.Request) error

var plainSales = []PlainSale{
	{"forupdate", "SELECT FOR UPDATE, the order, UPDATE", true, postgresForUpdate, mysqlForUpdate, false},
	{"nowait", "FOR UPDATE NOWAIT, or the buyer is refused", false, postgresNoWait, mysqlNoWait, false},
	{"skiplocked", "FOR UPDATE SKIP LOCKED over 16 buckets, or the buyer is refused", false, postgresSkipLocked, mysqlSkipLocked, true},
	{"cas", "UPDATE if no other order was faster, 5 attempts, or the buyer is refused", false, postgresCAS, mysqlCAS, false},
	{"advisory", "UPDATE if pg_try_advisory_xact_lock is true, or the buyer is refused", false, postgresAdvisory, nil, false},
}

// PlainSales lists the ways that a kind of server has.
func PlainSales(kind devdb.Kind) []PlainSale {
	return slices.DeleteFunc(slices.Clone(plainSales), func(p PlainSale) bool { return p.MySQL == nil && kind != devdb.Postgres })
}

// plainBuckets is how many rows an SKU has where orders pass over locked ones.
const plainBuckets = 16

// PlainShop sells by a PlainSale. The Store takes deliveries and reads the books.
type PlainShop struct {
	*inventory.Store
	sale PlainSale
	db   *Database
}

// Shop sells from the database of db, whose deliveries and books are store's.
func (p PlainSale) Shop(store *inventory.Store, db *Database) *PlainShop {
	return &PlainShop{store, p, db}
}

// Restock spreads what comes in over as many rows as the way sells from.
func (p *PlainShop) Restock(ctx context.Context, a inventory.Adjustment) (bool, error) {
	replayed, err := p.Store.Restock(ctx, a)
	if err == nil && p.sale.spread && !replayed {
		err = p.spread(ctx, a.SKU, a.Delta/plainBuckets)
	}
	return replayed, err
}

// spread moves a share from the first bucket into each of the others.
func (p *PlainShop) spread(ctx context.Context, sku string, share int64) error {
	return p.db.Tx(ctx, func(tx Conn) error {
		const take = "UPDATE dblock_stock SET available = available - $1 WHERE sku = $2 AND bucket = 0"
		if _, err := tx.Exec(ctx, take, share*(plainBuckets-1), sku); err != nil {
			return err
		}
		for bucket := range plainBuckets - 1 {
			const add = "INSERT INTO dblock_stock (sku, bucket, available) VALUES ($1, $2, $3)"
			if _, err := tx.Exec(ctx, add, sku, bucket+1, share); err != nil {
				return err
			}
		}
		return nil
	})
}

// Reserve sells an order whose key is new: its Key, SKU, Buyer and Qty count.
func (p *PlainShop) Reserve(ctx context.Context, r inventory.Request) (inventory.Reservation, error) {
	if err := pick(p.db.kind, p.sale.Postgres, p.sale.MySQL)(ctx, p.db, r); err != nil {
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

// busyIfLocked returns dblock.ErrBusy for an order that met a locked row.
func busyIfLocked(err error) error {
	if postgres.IsLocked(err) || mysql.IsLocked(err) {
		return dblock.ErrBusy
	}
	return err
}

// casAttempts is how often an order is tried that meets a faster one, and casPause is the first
// pause between attempts, at most.
const (
	casAttempts = 5
	casPause    = 5 * time.Millisecond
)

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

const (
	seeStock   = "SELECT available FROM dblock_stock WHERE sku = $1 AND bucket = 0"
	plainOrder = "INSERT INTO dblock_reservation (reservation_key, sku, bucket, buyer, qty, state) VALUES ($1, $2, $3, $4, $5, 2)"
	plainTake  = "UPDATE dblock_stock SET available = available - $1 WHERE sku = $2 AND bucket = $3"
)

// look reads the stock, and returns ErrSoldOut if it is not enough.
func look(ctx context.Context, conn Conn, query string, r inventory.Request) (left int64, err error) {
	if err := conn.Query(ctx, query, r.SKU).Scan(&left); err != nil {
		return 0, err
	}
	if left < r.Qty {
		return left, inventory.ErrSoldOut
	}
	return left, nil
}

// writePlain writes the order, and takes its units last.
func writePlain(ctx context.Context, tx Conn, r inventory.Request, bucket int64) error {
	if _, err := tx.Exec(ctx, plainOrder, r.Key, r.SKU, bucket, r.Buyer, r.Qty); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, plainTake, r.Qty, r.SKU, bucket)
	return err
}
