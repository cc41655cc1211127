package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/internal/merge"
	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// Store sells from one database. It is safe for concurrent use; one a process is enough, and one
// a process merges best. Make it with pginventory.New or mysqlinventory.New.
type Store struct {
	engine  engine.Engine
	o       Options
	queue   *merge.Queue[Request, outcome]
	slots   *slots      // of all strategies but Merge
	way     engine.Sell // of a single order
	seen    seen
	caution atomic.Int64 // batches yet to look up what is recorded; negative: none
}

// New makes a Store on an engine; dblock.ErrUnsupported where that lacks the strategy. It is for the engine rooms: outside this module there are none.
func New(e engine.Engine, o Options) (*Store, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Store{engine: e, o: o, slots: newSlots(o.MaxInFlight, o.MaxQueue), seen: seen{spread: o.Strategy == SkipLocked}}
	if s.way, err = s.wayOf(o.Strategy); err != nil {
		return nil, err
	}
	s.queue = merge.New(merge.Options[Request, outcome]{
		Run:         s.sell,
		Key:         func(r Request) string { return r.SKU },
		Poison:      func(err error) bool { return s.engine.Fault(err) == fault.Poison },
		MaxBatch:    o.MaxBatch,
		MaxQueue:    o.MaxQueue,
		MaxInFlight: min(o.MaxInFlight, mergedInFlight),
		PerKey:      s.perSKU(),
	})
	return s, nil
}

// perSKU is how many statements for one SKU are in flight at once. Where the stock is locked after
// the orders were written, a second one writes its own meanwhile; else it would only wait.
func (s *Store) perSKU() int {
	if s.engine.Ways().Together != nil {
		return 2
	}
	return 1
}

// Reserve sells r.Qty units of r.SKU, all or none. It waits while ctx lives; where ctx ends
// before the order was sent, nothing was written, and afterwards the error is
// dblock.ErrOutcomeUnknown.
//
// Errors: ErrSoldOut, ErrKeyReused, ErrUnknownSKU, ErrInvalid, ErrRejected, and of dblock
// ErrOverloaded, ErrBusy, ErrUnavailable, ErrOutcomeUnknown, ErrSchema, ErrClosed. Under a Strategy
// that does not wait (see SellsAll) dblock.ErrBusy is an everyday answer: send the same order again.
func (s *Store) Reserve(ctx context.Context, r Request) (Reservation, error) {
	if err := r.validate(); err != nil {
		return Reservation{}, err
	}
	sell := s.queue.Do
	if s.o.Strategy != Merge {
		sell = s.outright
	}
	got, err := sell(ctx, r)
	if err != nil {
		err = s.explain(err, fmt.Sprintf("order %q", r.Key))
	}
	return r.reservation(got), err
}

// Strategy is how the Store sells.
func (s *Store) Strategy() Strategy { return s.o.Strategy }

// Lookup returns what is recorded under key: ErrNotFound where nothing is.
func (s *Store) Lookup(ctx context.Context, key string) (Reservation, error) {
	if err := text("key", key, 1); err != nil {
		return Reservation{}, err
	}
	var row engine.Row
	var found bool
	err := s.retry(ctx, attempt{}, func(ctx context.Context, _ attempt) (err error) {
		row, found, err = s.engine.Lookup(ctx, key)
		return err
	})
	if err != nil {
		return Reservation{}, s.explain(err, fmt.Sprintf("look-up of %q", key))
	}
	if !found {
		return Reservation{}, fmt.Errorf("%w: nothing is recorded under key %q", ErrNotFound, key)
	}
	return reservation(row), nil
}

// Audit returns the books of the given SKUs, or of all where none is given, sorted by SKU, all
// read at one moment. It reads the whole ledger: seconds, where there are millions of rows.
func (s *Store) Audit(ctx context.Context, skus ...string) ([]Balance, error) {
	var rows []engine.Balance
	err := s.retry(ctx, attempt{}, func(ctx context.Context, _ attempt) (err error) {
		rows, err = s.engine.Balances(ctx)
		return err
	})
	if err != nil {
		return nil, s.explain(err, "audit")
	}
	var balances []Balance
	for _, b := range rows {
		if len(skus) == 0 || slices.Contains(skus, b.SKU) {
			balances = append(balances, Balance{
				SKU: b.SKU, Restocked: b.Restocked, Available: b.Available, Held: b.Held, Sold: b.Sold,
			})
		}
	}
	return balances, nil
}

// Close refuses further orders and waits, while ctx lives, for those under way. It leaves the
// pool, which is its owner's, open.
func (s *Store) Close(ctx context.Context) error {
	return errors.Join(s.slots.close(ctx), s.queue.Close(ctx))
}
