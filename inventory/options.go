package inventory

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/dblock-go/dblock/internal/callback"
)

// Strategy is how a Store sells. All of them keep the promises of the package's documentation, but
// for one: see SellsAll.
type Strategy int

const (
	// Merge: orders that queue while a statement is in flight share the next one, and one flush of
	// the disk. A lone order runs as under Direct.
	Merge Strategy = iota

	// Direct: one conditional UPDATE an order, which waits for its row. As many orders a second as
	// the disk takes flushes.
	Direct

	// ForUpdate: SELECT ... FOR UPDATE, then the order and the UPDATE, in two turns of the client's
	// (more on MySQL). As Direct, but the row is locked for a round trip longer.
	ForUpdate

	// NoWait: FOR UPDATE NOWAIT. Where another transaction has the row locked the order is refused
	// as dblock.ErrBusy at once. In a crowd that is most of them: units stay unsold unless buyers
	// come again.
	NoWait

	// SkipLocked: an SKU's stock is spread over buckets (see Options.Buckets), and an order takes a
	// free one that has enough, FOR UPDATE SKIP LOCKED. Refused as dblock.ErrBusy where all that
	// have enough are locked.
	SkipLocked

	// CAS: compare and swap. It reads without a lock and writes if the row has not changed since, up
	// to 5 times, each in a transaction of its own; then the order is refused as dblock.ErrBusy. Good
	// for rows that few people want, and the worst of all for one that many want.
	CAS

	// Advisory, on Postgres only: one conditional UPDATE by whoever has the SKU's advisory lock,
	// pg_try_advisory_xact_lock in its WHERE. All others are refused as dblock.ErrBusy at once, as
	// under NoWait, but more cheaply. It excludes Stores of the same strategy and Options.Schema,
	// and waits for the rest.
	Advisory
)

var strategies = [...]string{
	Merge: "merge", Direct: "direct", ForUpdate: "forupdate", NoWait: "nowait", SkipLocked: "skiplocked", CAS: "cas",
	Advisory: "advisory",
}

// Strategies lists all of them, the default first.
func Strategies() []Strategy {
	all := make([]Strategy, len(strategies))
	for i := range all {
		all[i] = Strategy(i)
	}
	return all
}

// SellsAll tells that buyers who ask once, and wait, get all that there is. Under the other
// strategies an order is refused as dblock.ErrBusy when another one is in its way, however much is
// left: nothing was written then, and it may be sent again.
func (s Strategy) SellsAll() bool { return s == Merge || s == Direct || s == ForUpdate }

func (s Strategy) String() string {
	if !s.known() {
		return fmt.Sprintf("Strategy(%d)", int(s))
	}
	return strategies[s]
}

func (s Strategy) known() bool { return s >= 0 && int(s) < len(strategies) }

// ParseStrategy returns the strategy of that name.
func ParseStrategy(name string) (Strategy, error) {
	for _, s := range Strategies() {
		if s.String() == name {
			return s, nil
		}
	}
	return 0, &InvalidError{"strategy", fmt.Sprintf("%q; there are %v", name, Strategies())}
}

// Options of a Store. The zero value is good for use.
type Options struct {
	// Strategy: default Merge.
	Strategy Strategy

	// Schema is where the tables are: a Postgres schema, or a MySQL database. Default: the first schema on the search_path that
	// has them when New looks for it, once; or the database that the connection is connected to.
	Schema string

	// Timeout bounds the work on one order or one merged batch, retries included. It also bounds how long an order or a change waits for
	// a row that another transaction has locked. A caller can wait twice as long: behind the batch before its own, or, under the other
	// strategies, while an order whose connection was lost is looked up. Default 10 s; 10 ms to 24 h.
	Timeout time.Duration

	// MaxQueue bounds how many orders may wait in this process; more are refused with
	// dblock.ErrOverloaded. Default 65,536, at most 16,777,216.
	MaxQueue int

	// MaxBatch bounds how many orders share a statement, and how many lines they have together. A cart of more lines has a statement of
	// its own. Default 1,024, at most 8,192.
	MaxBatch int

	// MaxInFlight bounds how many statements, and so connections, are in use at once. Default 4
	// under Merge, which gains nothing by more; 64 under the others. Under Direct at most 4 of them are for one SKU. Merged statements
	// that wait for a lock of another transaction do not count: there are up to 16 more of them, and at most half as many as the pool
	// has connections. At most 1,024.
	MaxInFlight int

	// Buckets is over how many rows Restock spreads what comes in of an SKU; it never takes a row
	// away. More than one makes sense under SkipLocked only, but every strategy sells from
	// whatever there are. Default 1, 16 under SkipLocked; at most 1,024.
	Buckets int

	// Latch is for how long a Store remembers that an SKU is sold out, after it has read so. Orders for it are then refused even if
	// units have come in since. Their keys are looked up first, in batches: a recorded order gets its recorded answer.
	// What another process gives back is for sale here when the latch ends; what this Store restocks or gives back is for sale at
	// once. 100 ms are good for a flash sale; at most 10 s. Default 0, and with RecordRefusals: never.
	Latch time.Duration

	// Allotment is how many units of an SKU this process takes at once, to sell them without the row that all processes
	// share; what it has not sold it gives back when it is closed, and Sweep of another process gives it back after a crash. Nobody is told that
	// an SKU is sold out while there are units in allotments. It makes sense under Merge, where several processes sell the same SKU, each more than
	// a few times Allotment. It takes leases (a member of its own in the database, a heartbeat every few seconds, up to 5 connections). Default 0: none.
	// At most MaxQty.
	Allotment int64

	// RecordRefusals also records orders that found too little stock, or were over their limit, so that the answer to a key
	// never changes, restock or not. It costs a row a refusal. Without it a refusal is recorded all the same if an earlier
	// attempt of the order lost its connection: that attempt may still be under way, and must not sell later.
	RecordRefusals bool

	// Log is told of what RunSweeper fails at; default: nothing is.
	Log *slog.Logger
}

const (
	minTimeout  = 10 * time.Millisecond
	maxTimeout  = 24 * time.Hour
	maxLatch    = 10 * time.Second
	maxBatch    = 8192
	maxBuckets  = 1024
	maxInFlight = 1024
	maxQueue    = 1 << 24

	mergedInFlight = 4  // merged statements at once
	maxWaiters     = 16 // of them, besides, that wait for a lock
	directPerSKU   = 4  // orders for one SKU at once under Direct
)

// perSKU is how many orders for one SKU are sold directly at once. While one is flushed to the disk, others wait for the row, and more
// than a few would only take the slots of other SKUs.
func (o Options) perSKU() int {
	if o.Strategy == Direct {
		return directPerSKU
	}
	return 0
}

// withDefaults fills in the defaults and refuses what makes no sense.
func (o Options) withDefaults() (Options, error) {
	switch {
	case !o.Strategy.known():
		return o, &InvalidError{"Options.Strategy", fmt.Sprintf("%v; there are %v", o.Strategy, Strategies())}
	case o.Timeout != 0 && (o.Timeout < minTimeout || o.Timeout > maxTimeout):
		return o, &InvalidError{"Options.Timeout", fmt.Sprintf("%v is not within %v to %v", o.Timeout, minTimeout, maxTimeout)}
	case o.Allotment < 0 || o.Allotment > MaxQty:
		return o, &InvalidError{"Options.Allotment", fmt.Sprintf("%d is not within 0 to %d", o.Allotment, int64(MaxQty))}
	case o.Allotment > 0 && o.Strategy != Merge:
		return o, &InvalidError{"Options.Allotment", fmt.Sprintf("it is for %v, and the strategy is %v", Merge, o.Strategy)}
	case o.Latch < 0 || o.Latch > maxLatch:
		return o, &InvalidError{"Options.Latch", fmt.Sprintf("%v is not within 0 to %v", o.Latch, maxLatch)}
	case o.MaxQueue < 0 || o.MaxQueue > maxQueue:
		return o, &InvalidError{"Options.MaxQueue", fmt.Sprintf("%d is not within 0 to %d", o.MaxQueue, maxQueue)}
	case o.MaxBatch < 0 || o.MaxBatch > maxBatch:
		return o, &InvalidError{"Options.MaxBatch", fmt.Sprintf("%d is not within 0 to %d", o.MaxBatch, maxBatch)}
	case o.MaxInFlight < 0 || o.MaxInFlight > maxInFlight:
		return o, &InvalidError{"Options.MaxInFlight", fmt.Sprintf("%d is not within 0 to %d", o.MaxInFlight, maxInFlight)}
	case o.Buckets < 0 || o.Buckets > maxBuckets:
		return o, &InvalidError{"Options.Buckets", fmt.Sprintf("%d is not within 0 to %d", o.Buckets, maxBuckets)}
	}
	o.Log = callback.Logger(o.Log)
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	if o.RecordRefusals {
		o.Latch = 0
	}
	o.MaxQueue = cmp.Or(o.MaxQueue, 65536)
	o.MaxBatch = cmp.Or(o.MaxBatch, 1024)
	if o.Strategy != Merge {
		o.MaxInFlight = cmp.Or(o.MaxInFlight, 64)
	}
	if o.Strategy == SkipLocked {
		o.Buckets = cmp.Or(o.Buckets, 16)
	}
	o.Buckets = cmp.Or(o.Buckets, 1)
	o.MaxInFlight = cmp.Or(o.MaxInFlight, mergedInFlight)
	return o, nil
}
