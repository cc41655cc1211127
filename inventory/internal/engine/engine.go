// Package engine is the seam between inventory, which decides, and its engine rooms, which know
// one database's SQL: an engine runs statements and decides nothing.
package engine

import (
	"context"

	"github.com/dblock-go/dblock/internal/fault"
)

// Row is one reservation as the database holds it.
type Row struct {
	Key, SKU, Buyer string
	Qty             int64
	State           int16
}

// Bucket is one row of an SKU's stock.
type Bucket struct {
	Number int32 // from 0, without a gap
	Left   int64
}

// Books is what a transaction reads before it decides.
type Books struct {
	Stock    map[string][]Bucket   // what is left of each SKU, by number, each row locked
	Skipped  func(sku string) bool // whether somebody else has locked a row of the SKU
	Recorded map[string]Row        // reservations that exist already, by key
}

// Plan is what a transaction writes. An empty plan ends it without a write.
type Plan struct {
	Insert []Row   // sorted by key, so that two batches never wait for each other crosswise
	Take   []Units // sorted by SKU and bucket
}

// Units is a quantity of one SKU's bucket.
type Units struct {
	SKU    string
	Bucket int32
	Qty    int64
}

// Adjustment is a change of stock that is not a sale.
type Adjustment struct {
	ID, SKU string
	Delta   int64
}

// Balance is one SKU's books, as read at one moment.
type Balance struct {
	SKU                              string
	Available, Held, Sold, Restocked int64
}

// Verdict is what became of an order that was sent outright.
type Verdict int

const (
	TooFew Verdict = iota // nothing was written: too few are left where it looked, or the SKU is unknown; Transact will say
	Sold
	Taken // nothing was written: there is enough, as far as can be seen, and somebody else holds or has just changed it
)

// Sell sells one order in a transaction of its own, in the fewest round trips.
type Sell func(ctx context.Context, row Row) (Verdict, error)

// Orders are orders for one SKU, sorted by key, no key twice.
type Orders struct {
	SKU          string
	Keys, Buyers []string
	Qtys         []int64
}

// SellTogether sells all orders or none, in a transaction of its own and one round trip, and returns
// what is left then. It locks the stock last, when the orders are written.
type SellTogether func(ctx context.Context, o Orders) (v Verdict, left int64, err error)

// Ways are the ways to sell outright. All but SkipLocked sell from bucket 0. One that the database
// lacks is nil.
type Ways struct {
	Together SellTogether // a batch in one statement

	Direct   Sell // one conditional UPDATE
	NoWait   Sell // a lock that is refused at once
	CAS      Sell // a row that has not changed since it was read, in one attempt
	Advisory Sell // one conditional UPDATE, by whoever has the SKU's advisory lock

	// SkipLocked sells from the first free bucket that has enough, beginning with the given one.
	SkipLocked func(ctx context.Context, row Row, first int32) (Verdict, error)
}

// Engine is one database. Its errors are what the driver says; Fault tells what they mean.
type Engine interface {
	// Ways are the ways to sell outright.
	Ways() Ways

	// Transact locks the stock of skus, all buckets, in order, reads what is recorded under keys, and writes
	// what decide makes of it, all in one READ COMMITTED transaction. Without wait it passes over
	// rows that are locked; without keys it looks none up.
	Transact(ctx context.Context, skus, keys []string, wait bool, decide func(Books) Plan) error

	// Adjust runs fn in one READ COMMITTED transaction, and commits it where fn says so.
	Adjust(ctx context.Context, fn func(AdjustTx) (commit bool, err error)) error

	// Adjustment returns what is recorded under id.
	Adjustment(ctx context.Context, id string) (a Adjustment, found bool, err error)

	// Lookup returns what is recorded under key.
	Lookup(ctx context.Context, key string) (row Row, found bool, err error)

	// Balances reads the books of every SKU in one snapshot.
	Balances(ctx context.Context) ([]Balance, error)

	// Fault tells what an error of this engine means.
	Fault(err error) fault.Fault
}

// AdjustTx is the transaction of one adjustment.
type AdjustTx interface {
	InsertAdjustment(ctx context.Context, a Adjustment) error
	// AdjustStock adds a.Delta to bucket 0; false where there is no such SKU, or too little in it.
	AdjustStock(ctx context.Context, a Adjustment) (bool, error)
	// LockStock locks all buckets of an SKU, in order; none where there is no such SKU.
	LockStock(ctx context.Context, sku string) ([]Bucket, error)
	// AddStock adds to buckets of one SKU, and makes those that are missing.
	AddStock(ctx context.Context, units []Units) error
	// TakeStock takes from buckets of one SKU that are locked.
	TakeStock(ctx context.Context, units []Units) error
}
