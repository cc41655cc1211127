package inventory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/ctxerr"
	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// Store sells from one database. It is safe for concurrent use. One Store for each process is
// enough, and batches best. Make it with pginventory.New or mysqlinventory.New.
type Store struct {
	driver     driver.Driver
	o          Options
	retry      *retrier
	cache      *skuCache
	calls      *calls
	seller     *seller
	changer    *changer
	sweeper    *sweeper
	allotments *allotments
	adjusting  *adjusting // of Restock and Repair
}

// newStore makes a Store; o has its defaults.
func newStore(d driver.Driver, o Options) *Store {
	s := &Store{driver: d, o: o, retry: newRetrier(d, o.Timeout), cache: newCache(o.SoldOutTTL), calls: newCalls()}
	s.adjusting = newAdjusting(d.Caps().Connections)
	s.allotments = &allotments{driver: d, retry: s.retry, cache: s.cache, calls: s.calls, units: o.Allotment}
	s.changer = newChanger(d, o, s.retry, s.cache)
	s.sweeper = &sweeper{driver: d, retry: s.retry, changer: s.changer, allotments: s.allotments}
	s.seller = newSeller(d, o, s.retry, s.cache, s.allotments, s.sweeper)
	return s
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
	return s.seller.reserve(ctx, order{Request: r})
}

// ReserveAll is Reserve for several SKUs under one key: all lines or none. Two carts never
// deadlock, whatever their order. Options.Direct makes no difference to it.
func (s *Store) ReserveAll(ctx context.Context, c Cart) (Reservation, error) {
	o, err := c.order()
	if err != nil {
		return Reservation{}, err
	}
	return s.seller.reserve(ctx, o)
}

// Confirm sells what is held under key. It writes to the reservation alone, and never to the stock.
// A reservation that is sold already is returned with Replayed set.
//
// Errors: ErrExpired, ErrCancelled, ErrNotFound, ErrSoldOut (its order was refused, and that is
// recorded), ErrRejected, and of dblock ErrInvalid, ErrOverloaded, ErrBusy, ErrConflict,
// ErrUnavailable, ErrOutcomeUnknown (call it again), ErrSchema, ErrClosed.
func (s *Store) Confirm(ctx context.Context, key string) (Reservation, error) {
	return s.changer.change(ctx, s.changer.confirms, change{to: ReservationSold, key: key}, s.o.Timeout)
}

// Extend holds what is held under key for d from now on, or for longer if it was held for longer. d
// is as Request.Hold.
//
// Errors: ErrAlreadyConfirmed, and those of Confirm.
func (s *Store) Extend(ctx context.Context, key string, d time.Duration) (Reservation, error) {
	if err := holdTime("d", d); err != nil {
		return Reservation{}, err
	}
	return s.changer.change(ctx, s.changer.confirms, change{to: ReservationHeld, key: key, hold: d}, s.o.Timeout)
}

// Cancel gives back what is held under key, and makes sure that nothing ever will be: a key that is
// not known yet is recorded as cancelled, and an order that comes under it later is refused with
// ErrCancelled. What has expired stays so, and is no error; neither is what was cancelled or
// refused before, returned with Replayed set.
//
// Errors: ErrAlreadyConfirmed, and of dblock ErrInvalid, ErrBusy, ErrConflict, ErrUnavailable,
// ErrOutcomeUnknown (call it again), ErrSchema, ErrClosed, and ErrRejected. It is never refused for
// too many calls.
func (s *Store) Cancel(ctx context.Context, key string) (Reservation, error) {
	return s.changer.change(ctx, s.changer.returns, change{to: ReservationCancelled, key: key}, s.o.Timeout)
}

// Sweep gives back what was held under at most limit reservations, 1 to 8,192, that have expired,
// those first that expired first, and says how many they were. Those whose commit got no reply are
// swept, and not counted. Until then their units are not for sale; nothing else depends on it.
//
// One that the database refuses does not stop the others: Sweep goes on, returns how many it has
// swept and the error ErrRejected of the first that was refused, and comes back to that later,
// after a minute at most. One that another transaction has locked comes later, too.
//
// Then it gives back the allotments of processes that are gone. Those that are locked or refused
// come later in the same way. If there are allotments, it opens a Locker of leases, which Close
// closes, also in a Store that has none itself.
//
// Errors: ErrRejected, and of dblock ErrInvalid, ErrBusy, ErrConflict, ErrUnavailable,
// ErrOutcomeUnknown (call it again), ErrSchema, ErrClosed.
func (s *Store) Sweep(ctx context.Context, limit int) (swept int, err error) {
	if limit < 1 || limit > maxBatch {
		return 0, invalid("limit", "%d is not within 1 to %d", limit, maxBatch)
	}
	leave, err := s.calls.begin()
	if err != nil {
		return 0, err
	}
	defer leave()
	swept, _, err = s.sweeper.sweep(ctx, limit)
	return swept, err
}

// RunSweeper sweeps every so often, at least 10 ms, until ctx ends; that is its error. What fails
// is logged (see Options.Log) and tried again. It may run in every process: none waits long for
// another one.
func (s *Store) RunSweeper(ctx context.Context, every time.Duration) error {
	if every < minTimeout {
		return invalid("every", "%v is shorter than %v", every, minTimeout)
	}
	for {
		leave, err := s.calls.begin()
		if err != nil {
			return err
		}
		swept, full, err := s.sweeper.sweep(ctx, sweepBatch)
		leave()
		if err != nil && ctx.Err() == nil {
			s.o.Log.WarnContext(ctx, "inventory: the sweep failed, and is tried again", "error", err)
		}
		if full && (err == nil || swept > 0) {
			continue
		}
		select {
		case <-time.After(pace.Jitter(every)):
		case <-ctx.Done():
			return ctxerr.Of(ctx)
		}
	}
}

// Lookup returns what is recorded under key: ErrNotFound if nothing is.
//
// Other errors: of dblock ErrInvalid, ErrBusy, ErrConflict, ErrUnavailable, ErrSchema,
// ErrClosed. On Postgres with a synchronous standby that does not answer, ErrOutcomeUnknown.
func (s *Store) Lookup(ctx context.Context, key string) (Reservation, error) {
	if err := text("", "key", key, 1); err != nil {
		return Reservation{}, err
	}
	began := time.Now()
	var rows []driver.Row
	err := s.call(ctx, fmt.Sprintf("look-up of %q", key), func(ctx context.Context) error {
		books, err := s.driver.Read(ctx, driver.ReadRequest{Keys: []string{key}})
		rows = books.Recorded[key]
		return err
	})
	if err != nil {
		return Reservation{}, err
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
	for _, sku := range skus {
		if err := text("", "sku", sku, 1); err != nil {
			return nil, err
		}
	}
	var rows []driver.Balance
	err := s.call(ctx, "audit", func(ctx context.Context) (err error) {
		rows, err = s.driver.Balances(ctx, skus)
		return err
	})
	if err != nil {
		return nil, err
	}
	return driver.Each(rows, func(b driver.Balance) Balance { return Balance(b) }), nil
}

// call runs what until it says yes or no, unless the Store is closed.
func (s *Store) call(ctx context.Context, named string, what func(context.Context) error) error {
	leave, err := s.calls.begin()
	if err != nil {
		return err
	}
	defer leave()
	return s.run(ctx, named, what)
}

// adjust is call for a change of an SKU's stock beside orders. It waits for its turn for at most
// Options.Timeout.
func (s *Store) adjust(ctx context.Context, sku, named string, what func(context.Context, attempt) error) error {
	waiting, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	leave, ok := s.adjusting.acquire(waiting, sku)
	if !ok {
		why := errAdjusting
		if ctx.Err() != nil {
			why = errUnsent
		}
		return s.retry.explain(outOfTime(ctx, false, sqlerr.Busy, why), named)
	}
	defer leave()
	if err := s.retry.do(ctx, attempt{}, what); err != nil {
		return s.retry.explain(err, named)
	}
	return nil
}

var (
	errAdjusting = errors.New("other changes of stock were before it for too long: nothing was sent; send fewer at once, " +
		"or look for transactions that have their rows locked")
	errUnsent = errors.New("the database was not asked")
)

// run is call for what belongs to a call.
func (s *Store) run(ctx context.Context, named string, what func(context.Context) error) error {
	err := s.retry.do(ctx, attempt{}, func(ctx context.Context, _ attempt) error { return what(ctx) })
	if err != nil {
		return s.retry.explain(err, named)
	}
	return nil
}

// Close refuses further calls and waits, while ctx lives, for those under way. Give it a context
// that lives: with one that has ended it gives no allotment back. It leaves the pool, which is its
// owner's, open.
func (s *Store) Close(ctx context.Context) error {
	s.calls.close()
	err := errors.Join(s.seller.close(ctx), s.changer.close(ctx), s.calls.wait(ctx))
	return errors.Join(err, s.allotments.close(ctx))
}
