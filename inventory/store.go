package inventory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/internal/merge"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// Store sells from one database. It is safe for concurrent use; one a process is enough, and one
// a process merges best. Make it with pginventory.New or mysqlinventory.New.
type Store struct {
	driver            driver.Driver
	o                 Options
	queue, looks      *merge.Queue[order, outcome]
	known             *known
	confirms, returns *changes      // what touches no stock, and what gives it back
	sweeps, apart     *changes      // what has expired, and what waits for rows that are locked
	later             later[string] // what has expired and could not be swept
	slots             *slots        // of orders that are sold directly
	seen              seen
	allotments        allotments
	latches           *latches
	caution           atomic.Int64 // batches yet to look up what is recorded; negative: none
	hooksBriefly      atomic.Int64 // transactions yet whose hooks wait briefly; negative: none
	strangers         atomic.Int64 // batches yet that do not take unknown buyers for new ones; negative: none
	unused            atomic.Int64 // the same of batches that have read the limits of unknown buyers: some gave back all they had

	mu     sync.Mutex
	ending context.Context // done once Close was called
	end    context.CancelFunc
	calls  sync.WaitGroup // those that no merge.Queue carries, and what goes on behind the callers' backs
}

// newStore makes a Store; o has its defaults.
func newStore(d driver.Driver, o Options) *Store {
	s := &Store{driver: d, o: o, known: newKnown(), slots: newSlots(o.MaxInFlight, o.MaxQueue)}
	s.allotments.own = &s.seen.own
	s.latches = newLatches(o.SoldOutTTL)
	s.ending, s.end = context.WithCancel(context.Background())
	s.confirms, s.returns, s.sweeps, s.apart = s.newChanges(false), s.newChanges(true), s.newChanges(true), s.newApart()
	s.queue, s.looks = s.newQueue(s.sell, s.perSKU()), s.newQueue(s.look, 1)
	return s
}

// classify tells what an error means, of the driver or of a hook.
func (s *Store) classify(err error) sqlerr.Class {
	var hook *driver.HookError
	if errors.As(err, &hook) {
		return sqlerr.BadInput
	}
	return s.driver.Classify(err)
}

// newQueue makes a queue of orders.
func (s *Store) newQueue(run func(context.Context, []order, bool) ([]answer, error), perSKU int) *merge.Queue[order, outcome] {
	return merge.New(merge.Options[order, outcome]{
		Run:         run,
		Key:         func(o order) string { return o.lane() },
		Classify:    s.ofBatch,
		Blocked:     isBlocked,
		Weight:      func(o order) int { return max(1, len(o.lines)) },
		MaxWeight:   s.o.MaxBatch,
		MaxBatch:    s.o.MaxBatch,
		MaxQueue:    s.o.MaxQueue,
		MaxInFlight: s.mergedInFlight(),
		PerKey:      perSKU,
		Waiters:     s.waiters(),
		MaxWait:     s.o.Timeout,
		Name:        laneName,
	})
}

// mergedInFlight is how many statements of the queue are in flight at once.
func (s *Store) mergedInFlight() int {
	if s.o.Direct {
		return mergedInFlight // Options.MaxInFlight is for those that are not merged
	}
	return s.o.MaxInFlight
}

// waiters is how many statements wait for locks at once. Half of the pool is left to others.
func (s *Store) waiters() int {
	if n := s.driver.Connections(); n > 0 {
		return min(maxWaiters, n/2)
	}
	return maxWaiters
}

// perSKU is how many statements for one SKU are in flight at once. If the stock is locked after
// the orders were written, a second one writes its own meanwhile; else it would only wait.
func (s *Store) perSKU() int {
	if s.driver.Ways().Together != nil {
		return 2
	}
	return 1
}

// Reserve sells r.Qty units of r.SKU, or sets them aside for r.Hold, all or none. It waits while
// ctx lives; if ctx ends before the order was sent, nothing was written, and afterwards the
// error is dblock.ErrOutcomeUnknown.
//
// Errors: ErrSoldOut, ErrLimitExceeded, ErrKeyReused, ErrCancelled and ErrExpired (of what is
// recorded under the key), ErrUnknownSKU, ErrRejected, and of dblock ErrInvalid, ErrOverloaded,
// ErrBusy, ErrConflict, ErrUnavailable, ErrOutcomeUnknown, ErrSchema, ErrClosed.
func (s *Store) Reserve(ctx context.Context, r Request) (Reservation, error) {
	if err := r.validate(); err != nil {
		return Reservation{}, err
	}
	return s.reserve(ctx, order{Request: r})
}

// ReserveAll is Reserve for several SKUs under one key: all lines or none. Two carts never deadlock, whatever their order. Options.Direct
// makes no difference to it.
func (s *Store) ReserveAll(ctx context.Context, c Cart) (Reservation, error) {
	o, err := c.order()
	if err != nil {
		return Reservation{}, err
	}
	return s.reserve(ctx, o)
}

func (s *Store) reserve(ctx context.Context, o order) (Reservation, error) {
	began := time.Now()
	got, err := s.decided(ctx, o)
	got, err = s.decidedAgain(ctx, o, got, err)
	if err != nil && got.State == 0 {
		err = s.explain(err, fmt.Sprintf("order %q", o.Key))
	}
	return o.reservation(got, began), err
}

func (s *Store) decided(ctx context.Context, o order) (outcome, error) {
	o.open = s.queue.IsBlocked(behindKey(o.Key))
	switch _, sold := s.latched(&o, time.Now()); {
	case sold:
		return s.lookedAt(ctx, o)
	case s.o.Direct && !o.open:
		return s.outright(ctx, o)
	}
	return s.merged(ctx, o)
}

// Lookup returns what is recorded under key: ErrNotFound if nothing is.
//
// Other errors: of dblock ErrInvalid, ErrBusy, ErrConflict, ErrUnavailable, ErrSchema,
// ErrClosed. On Postgres with a synchronous standby that does not answer, ErrOutcomeUnknown.
func (s *Store) Lookup(ctx context.Context, key string) (Reservation, error) {
	if err := text("", "key", key, 1); err != nil {
		return Reservation{}, err
	}
	leave, err := s.enter()
	if err != nil {
		return Reservation{}, err
	}
	defer leave()
	began := time.Now()
	var rows []driver.Row
	err = s.retry(ctx, attempt{}, func(ctx context.Context, _ attempt) (err error) {
		rows, err = s.driver.Lookup(ctx, key)
		return err
	})
	if err != nil {
		return Reservation{}, s.explain(err, fmt.Sprintf("look-up of %q", key))
	}
	if len(rows) == 0 {
		return Reservation{}, fmt.Errorf("%w: nothing is recorded under key %q", ErrNotFound, key)
	}
	return reservation(rows, began), nil
}

// Audit returns the books of the given SKUs, or of all if none is given, sorted by SKU, all
// read at one moment. It reads all reservations of theirs: seconds, if there are millions.
//
// Errors: of dblock ErrInvalid, ErrBusy, ErrConflict, ErrUnavailable, ErrSchema, ErrClosed.
func (s *Store) Audit(ctx context.Context, skus ...string) ([]Balance, error) {
	if err := eachSKU(skus); err != nil {
		return nil, err
	}
	leave, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	var rows []driver.Balance
	err = s.retry(ctx, attempt{}, func(ctx context.Context, _ attempt) (err error) {
		rows, err = s.driver.Balances(ctx, skus)
		return err
	})
	if err != nil {
		return nil, s.explain(err, "audit")
	}
	balances := make([]Balance, len(rows))
	for i, b := range rows {
		balances[i] = balance(b)
	}
	return balances, nil
}

func balance(b driver.Balance) Balance {
	return Balance{SKU: b.SKU, Restocked: b.Restocked, Available: b.Available, Allotted: b.Allotted, Held: b.Held, Sold: b.Sold}
}

// Close refuses further calls and waits, while ctx lives, for those under way. It leaves the
// pool, which is its owner's, open.
func (s *Store) Close(ctx context.Context) error {
	s.mu.Lock() // nothing begins once we wait
	s.end()
	s.mu.Unlock()
	err := errors.Join(s.slots.close(ctx), s.queue.Close(ctx), s.looks.Close(ctx), s.confirms.Close(ctx), s.returns.Close(ctx), s.sweeps.Close(ctx), s.apart.Close(ctx), s.callsEnd(ctx))
	return errors.Join(err, s.closeAllotments(ctx))
}

// behind does work behind the callers' backs, which Close ends.
func (s *Store) behind(work func(context.Context)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending.Err() != nil {
		return
	}
	s.calls.Go(func() { work(s.ending) })
}
