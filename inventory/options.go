package inventory

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/dblock-go/dblock/internal/callback"
)

// Options of a Store. The zero value is good for use.
type Options struct {
	// Direct sells each order in a transaction of its own, which waits for the SKU's row. It sells
	// as many orders a second as the disk takes flushes. Default false: orders that queue while a
	// statement is in flight share the next one, and one flush.
	Direct bool

	// Schema is where the tables are: a Postgres schema, or a MySQL database. Default: the first
	// schema on the search_path that has them when New looks for it, once; or the database that the
	// connection is connected to.
	Schema string

	// Timeout bounds the work on one order or one merged batch, retries included. It also bounds
	// how long an order or a change waits for a row that another transaction has locked. A caller
	// can wait twice as long: behind the batch before its own, or, with Direct, while an order
	// whose connection was lost is looked up. With Direct, an order that can't be sent for an
	// eighth of Timeout is merged with others first. Default 10 s; 10 ms to 24 h.
	Timeout time.Duration

	// MaxQueue bounds how many orders may wait in this process; more are refused with
	// dblock.ErrOverloaded. Default 65,536, at most 16,777,216.
	MaxQueue int

	// MaxBatch bounds how many orders share a statement, and how many lines they have together. A
	// cart of more lines has a statement of its own. Default 1,024, at most 8,192.
	MaxBatch int

	// MaxInFlight bounds how many statements of orders run at once, each on a connection. Default
	// 4, more of them sell no more; 64 with Direct. With Direct at most 4 of them are for one SKU.
	// At most 1,024. Merged statements that wait for a lock of another transaction do not count:
	// there are up to 16 more of them, and at most half as many as the pool has connections. Other
	// calls have 4 connections of each kind.
	MaxInFlight int

	// SoldOutTTL is for how long a Store remembers that an SKU is sold out, after it has read so.
	// Orders for it are then refused even if units have come in since. Their keys are looked up
	// first, in batches: a recorded order gets its recorded answer. What another process or a
	// ReserveTx gives back is for sale here when that time is over. What this Store restocks or
	// gives back otherwise is for sale at once. 100 ms are good for a flash sale; at most 10 s.
	// Default 0, and with RecordRefusals: never.
	SoldOutTTL time.Duration

	// Allotment is how many units of an SKU this process takes at once, to sell them without the
	// row that all processes share. It gives unsold units back when it is closed. After a crash
	// Sweep of another process gives them back. No order is ErrSoldOut while there are units in
	// allotments. It makes sense if several processes sell the same SKU, each more than a few times
	// Allotment. It takes leases (a member of its own in the database, a heartbeat every few
	// seconds, up to 5 connections). Default 0: none. At most MaxQty. Not with Direct.
	Allotment int64

	// RecordRefusals also records orders that found too little stock, or were over their limit, so
	// that their answers never change, restock or not. It costs a row a refusal. Without it
	// a refusal is recorded all the same if an earlier attempt of the order lost its connection:
	// that attempt may still be under way, and must not sell later.
	RecordRefusals bool

	// Log has the errors of RunSweeper. Default: they are not logged.
	Log *slog.Logger
}

const (
	minTimeout    = 10 * time.Millisecond
	maxTimeout    = 24 * time.Hour
	maxSoldOutTTL = 10 * time.Second
	maxBatch      = 8192
	maxInFlight   = 1024
	maxQueue      = 1 << 24

	mergedInFlight = 4  // merged statements at once
	maxWaiters     = 16 // of them, besides, that wait for a lock
	directPerSKU   = 4  // orders for one SKU at once with Direct: others would only wait for the row
)

// withDefaults returns the options with their defaults. A value out of range is dblock.ErrInvalid.
func (o Options) withDefaults() (Options, error) {
	switch {
	case o.Timeout != 0 && (o.Timeout < minTimeout || o.Timeout > maxTimeout):
		return o, invalid("Options.Timeout", "%v is not within %v to %v", o.Timeout, minTimeout, maxTimeout)
	case o.Allotment < 0 || o.Allotment > MaxQty:
		return o, invalid("Options.Allotment", "%d is not within 0 to %d", o.Allotment, int64(MaxQty))
	case o.Allotment > 0 && o.Direct:
		return o, invalid("Options.Allotment", "it is for merged orders, and Direct is set")
	case o.SoldOutTTL < 0 || o.SoldOutTTL > maxSoldOutTTL:
		return o, invalid("Options.SoldOutTTL", "%v is not within 0 to %v", o.SoldOutTTL, maxSoldOutTTL)
	case o.MaxQueue < 0 || o.MaxQueue > maxQueue:
		return o, invalid("Options.MaxQueue", "%d is not within 0 to %d", o.MaxQueue, maxQueue)
	case o.MaxBatch < 0 || o.MaxBatch > maxBatch:
		return o, invalid("Options.MaxBatch", "%d is not within 0 to %d", o.MaxBatch, maxBatch)
	case o.MaxInFlight < 0 || o.MaxInFlight > maxInFlight:
		return o, invalid("Options.MaxInFlight", "%d is not within 0 to %d", o.MaxInFlight, maxInFlight)
	}
	o.Log = callback.Logger(o.Log)
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	if o.RecordRefusals {
		o.SoldOutTTL = 0
	}
	o.MaxQueue = cmp.Or(o.MaxQueue, 65536)
	o.MaxBatch = cmp.Or(o.MaxBatch, 1024)
	if o.Direct {
		o.MaxInFlight = cmp.Or(o.MaxInFlight, 64)
	}
	o.MaxInFlight = cmp.Or(o.MaxInFlight, mergedInFlight)
	return o, nil
}
