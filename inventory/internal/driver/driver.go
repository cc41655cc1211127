// Package driver is the seam between inventory, which decides, and its drivers, which know one
// database's SQL: a driver runs statements and decides nothing.
package driver

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Row is one line of a reservation as the database holds it.
type Row struct {
	Key        string
	Line       int32 // from 0
	SKU, Buyer string
	Qty        int64
	State      int16
	Bucket     int32         // where its units came from; NoStock: it takes none.
	Limited    bool          // its units count against the buyer's quota; of a refused one: that was why.
	Hold       time.Duration // of one that is to be written: for how long it is held; 0: it is not.
	Left       time.Duration // of one that was read and is held: for how long yet; 0 or less: it has expired.
}

// NoStock is the bucket of what takes no stock.
const NoStock int32 = -1

// FirstAllotment is the first number of the buckets that processes took for themselves. Below it
// they are numbered from 0, without a gap.
const FirstAllotment int32 = 1 << 20

// Bucket is one row of an SKU's stock.
type Bucket struct {
	Number int32
	Left   int64
}

// Quota is what a buyer may take of an SKU.
type Quota struct{ SKU, Buyer string }

// ReadRequest is what a transaction locks and reads before it decides, in this order.
type ReadRequest struct {
	Quotas []Quota  // sorted, no two the same; missing rows are created.
	SKUs   []string // sorted, no two the same; all buckets are locked.
	Keys   []string // what is recorded under them is read, and not locked.
	Bucket int32    // of the one SKU, this bucket alone is locked; 0: all are.

	// What it waits for; it passes over all other rows that are locked. WaitFor is an SKU whose
	// rows are locked before those of the others. Those are waited for briefly then, for
	// InOrderTime, if Lingers: they may be locked briefly, and WaitFor again before long.
	Wait       bool // for the stock of all SKUs
	WaitFor    string
	Lingers    bool
	WaitQuotas bool

	// InOrder waits for the stock of all SKUs, as Wait does, but for InOrderTime. Rows of some are
	// locked while it waits for those of others.
	InOrder bool

	Units map[string]int64 // how many are asked for of each SKU, replays among them
}

// InOrderTime is how long a transaction waits for rows of its SKUs while it has others locked.
const InOrderTime = 50 * time.Millisecond

// Waits are the SKUs whose rows are waited for, which are locked first, and those whose rows are
// passed over if they are locked.
func (a ReadRequest) Waits() (waits, passes []string) {
	if a.Wait || a.InOrder {
		return a.SKUs, nil
	}
	for _, sku := range a.SKUs {
		if sku == a.WaitFor {
			waits = append(waits, sku)
		} else {
			passes = append(passes, sku)
		}
	}
	return waits, passes
}

// Books is what a transaction reads before it decides.
type Books struct {
	Stock    map[string][]Bucket // what is left of each SKU, by number, each row locked
	Used     map[Quota]int64     // units that count against a quota; none if another transaction has locked it
	Recorded map[string][]Row    // reservations that exist already, by key, their lines in order

	// Skipped reports whether another transaction has locked a row of an SKU. It is asked before
	// decide returns: of an SKU that has too few units for an order, and of one that the plan
	// leaves without units.
	Skipped func(sku string) bool

	// Unconfirmed is for the driver alone: what is recorded may be on no synchronous standby, and
	// is not answered before a later commit is confirmed.
	Unconfirmed bool
}

// Plan is what a transaction writes. One without Insert ends it without a write.
type Plan struct {
	Insert []Row   // sorted by key and line, so that two batches never deadlock
	Count  []Count // sorted by quota
	Take   []Units // sorted by SKU and bucket
}

// Left is how many units of an SKU the plan leaves in the rows that were read.
func (p Plan) Left(books Books, sku string) (left int64) {
	for _, b := range books.Stock[sku] {
		left += b.Left
	}
	for _, u := range p.Take {
		if u.SKU == sku {
			left -= u.Qty
		}
	}
	return left
}

// Count is by how many units a quota is used, and how many there may be.
type Count struct {
	Quota
	Qty, Limit int64
}

// Units is a quantity of one SKU's bucket.
type Units struct {
	SKU    string
	Bucket int32
	Qty    int64
}

// In is what a map has a value for.
func In[K comparable, V any](m map[K]V) map[K]bool {
	in := make(map[K]bool, len(m))
	for k := range m {
		in[k] = true
	}
	return in
}

// Partly takes the reservations out of recorded that have more lines than stand there, and returns
// the keys of all that do.
func Partly(recorded map[string][]Row, lines map[string]int64) map[string]bool {
	partly := make(map[string]bool)
	for key, n := range lines {
		if int64(len(recorded[key])) < n {
			partly[key] = true
			delete(recorded, key)
		}
	}
	return partly
}

// Adjustment is a change of stock that is not a sale.
type Adjustment struct {
	ID, SKU string
	Delta   int64
}

// Balance is one SKU's books, as read at one moment.
type Balance struct {
	SKU                                        string
	Restocked, Available, Allotted, Held, Sold int64
}

// Orders are orders for one SKU, sorted by key, no key twice.
type Orders struct {
	SKU          string
	Bucket       int32
	State        int16
	Hold         time.Duration // 0: they are not held
	Limit        int64         // of each buyer; 0: none
	OnlyNew      bool          // those that are recorded, or over their buyer's limit, are left out
	Keys, Buyers []string
	Qtys         []int64
}

// Sale is what became of Orders.
type Sale struct {
	Sold   bool     // false: nothing was written, as too few units are left in the bucket
	Unsold []string // keys of those that were left out
	Left   int64    // what is left in the bucket; negative: it is not known
}

// Caps says what a driver can do, and how it was set up.
type Caps struct {
	// Batches: Sell takes several orders, orders with a limit and any bucket, and locks the stock
	// last. Without it Sell takes one order without a limit, from bucket 0.
	Batches bool

	// Hooked: Transact calls a function of the host's before it commits. Sell does not.
	Hooked bool

	// HooksWaitLong: a hook waits for a lock for a second or more, even if it is to wait briefly.
	HooksWaitLong bool

	// Connections is how many there may be at once; 0: no bound is known.
	Connections int
}

// Failure is what an error means.
type Failure struct {
	Class  sqlerr.Class
	Locked bool // a lock was not had in time
	Dead   bool // the connection was dead before, unnoticed: another of the pool may live

	// Own, of the class sqlerr.Busy: a statement of dblock's own waited for a lock. Otherwise one
	// of a trigger did, or the server cancelled a statement.
	Own bool
}

type briefly struct{}

// Briefly is a context in which statements wait no longer for a lock than the statements of others
// usually have it, or not at all if the server can't bound a wait so closely. Then they fail as
// sqlerr.Busy.
func Briefly(ctx context.Context) context.Context { return context.WithValue(ctx, briefly{}, true) }

// Patiently is a context that is not brief.
func Patiently(ctx context.Context) context.Context { return context.WithValue(ctx, briefly{}, false) }

// IsBrief reports which of both it is.
func IsBrief(ctx context.Context) bool {
	brief, _ := ctx.Value(briefly{}).(bool)
	return brief
}

// Driver is one database. Its errors are those of the server and its client.
type Driver interface {
	Caps() Caps

	// Failure returns what an error of this driver means.
	Failure(err error) Failure

	// Sell sells orders in a transaction of its own and one round trip, all or none, unless
	// OnlyNew. Without OnlyNew one that is recorded is an error, sqlerr.Duplicate; and with a limit
	// each buyer is there once, within the limit: one that has a quota is sqlerr.Duplicate, too.
	Sell(ctx context.Context, o Orders) (Sale, error)

	// Transact locks and reads what is asked for and writes what decide makes of it, all in one
	// READ COMMITTED transaction.
	Transact(ctx context.Context, ask ReadRequest, decide func(Books) Plan) error

	// AwaitKeys waits until no other open transaction writes the reservations of rows, which are
	// sorted by key. It waits for about a second, or hardly at all if it is to be brief. Then the
	// error is sqlerr.Busy. It locks no stock and writes nothing.
	AwaitKeys(ctx context.Context, rows []Row) error

	// Read reads what buyers have used of their limits and what is left of SKUs, in one bucket
	// each. Then, no earlier, it reads what is recorded: an order that is sold in between is found
	// recorded, and is not refused for what it has taken itself. Read locks nothing.
	Read(ctx context.Context, ask ReadRequest) (Books, error)

	// Move runs fn in one READ COMMITTED transaction, which is committed if fn has called Write and
	// returned no error.
	Move(ctx context.Context, fn func(MoveTx) error) error

	// Due returns held reservations that have expired, those first that expired first, at most
	// limit. With buyers it returns those that count against limits of theirs, of so many lines.
	Due(ctx context.Context, buyers []string, limit int) ([]Due, error)

	// Tx returns a caller's transaction; false if it is not one of this driver's.
	Tx(tx CallerTx) (Tx, bool)

	// Allot moves so many units of an SKU, or all that are left, from bucket 0 to another one. It
	// returns what is in that then; 0 if there was nothing to move.
	Allot(ctx context.Context, sku string, bucket int32, units int64) (left int64, err error)

	// Allotted returns what is left in the allotments of all processes, sorted.
	Allotted(ctx context.Context) ([]Units, error)

	// Locker makes a Locker of leases in the same place, which the caller closes.
	Locker(ctx context.Context) (dblock.Locker, error)

	// Adjust runs fn in one READ COMMITTED transaction, and commits it if fn says so.
	Adjust(ctx context.Context, fn func(AdjustTx) (commit bool, err error)) error

	// Adjustment returns what is recorded under id.
	Adjustment(ctx context.Context, id string) (a Adjustment, found bool, err error)

	// Balances reads the books of the given SKUs, or of all if none is given, in one snapshot.
	Balances(ctx context.Context, skus []string) ([]Balance, error)

	// WrongQuotas returns those of the given SKUs, or of all if none is given, of which a quota
	// does not count what is held and sold.
	WrongQuotas(ctx context.Context, skus []string) ([]string, error)
}

// KeyOpen marks an error: another transaction, which has not ended, writes the reservation of one
// of the keys.
type KeyOpen struct{ Err error }

func (e *KeyOpen) Error() string { return e.Err.Error() }

func (e *KeyOpen) Unwrap() error { return e.Err }

// IsKeyOpen reports that an error is so marked.
func IsKeyOpen(err error) bool {
	var open *KeyOpen
	return errors.As(err, &open)
}

// ErrTxEnded: a transaction of the caller's has ended already.
var ErrTxEnded = errors.New("the transaction has ended")

// ErrTxReadOnly: such a transaction was begun read-only.
var ErrTxReadOnly = errors.New("the transaction is read-only")

// Tx is a caller's transaction, known to be one of the driver's.
type Tx interface {
	// Decide does what Transact does, below a savepoint: an error, or a plan of nothing, leaves the
	// transaction as it was. ErrTxEnded if it has ended. If decide says again, it reads again
	// and decides again, with all locks kept. decide may call Due and Move.
	Decide(ctx context.Context, ask ReadRequest, decide func(Books) (plan Plan, again bool, err error)) error
	// Due is that of Driver, as the transaction sees it, and has buyers. After an error the
	// transaction goes on, unless the server has ended it.
	Due(ctx context.Context, buyers []string, limit int) ([]Due, error)
	// Move does what Move of Driver does, below a savepoint, and makes nothing new. It passes over
	// every row that is locked, whatever fn asks for. An error leaves the transaction as it was.
	// ErrTxEnded if it has ended.
	Move(ctx context.Context, fn func(MoveTx) error) error
}

// AdjustTx is the transaction of one adjustment.
type AdjustTx interface {
	InsertAdjustment(ctx context.Context, a Adjustment) error
	// AdjustStock adds a.Delta to bucket 0; false if there is no such SKU, or too little in it.
	AdjustStock(ctx context.Context, a Adjustment) (bool, error)
	// LockStock locks all buckets of an SKU, in order; none if there is no such SKU. Without
	// wait it leaves out those that another transaction has locked.
	LockStock(ctx context.Context, sku string, wait bool) ([]Bucket, error)
	// AddStock adds to buckets of one SKU, and makes those that are missing.
	AddStock(ctx context.Context, units []Units) error
	// TakeStock takes from buckets of one SKU that are locked.
	TakeStock(ctx context.Context, units []Units) error
	// Balance reads the books of one SKU.
	Balance(ctx context.Context, sku string) (Balance, error)
	// QuotaDrifts returns what is to be added to quotas of an SKU so that they count what is held
	// and sold, sorted.
	QuotaDrifts(ctx context.Context, sku string) ([]Count, error)
	// LockQuotas locks them, and makes those that are missing.
	LockQuotas(ctx context.Context, quotas []Quota) error
	// CountQuotas adds to quotas that are locked.
	CountQuotas(ctx context.Context, counts []Count) error
	// UncountQuotas takes from quotas that are locked.
	UncountQuotas(ctx context.Context, counts []Count) error
}

// Due is a held reservation that has expired.
type Due struct {
	Key   string
	Lines int   // 0: their number is not known
	Quota Quota // against which it counts, if it was looked for by its buyer
}

// Each converts rows of a driver's.
func Each[R, T any](rows []R, as func(R) T) []T {
	all := make([]T, len(rows))
	for i, r := range rows {
		all[i] = as(r)
	}
	return all
}

// ByKey groups rows by their key, in their order.
func ByKey(rows []Row) map[string][]Row {
	byKey := make(map[string][]Row, len(rows))
	for _, r := range rows {
		byKey[r.Key] = append(byKey[r.Key], r)
	}
	return byKey
}
