package inventory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/inventory"
)

// waiter is a context that tells when somebody first waits for its end: a Store does so once it
// has the call in its queue, or in flight.
type waiter struct {
	context.Context
	once  sync.Once
	waits chan struct{}
}

func newWaiter(ctx context.Context) *waiter {
	return &waiter{Context: ctx, waits: make(chan struct{})}
}

func (w *waiter) Done() <-chan struct{} {
	w.once.Do(func() { close(w.waits) })
	return w.Context.Done()
}

// A batchTrial has 20 orders for two SKUs queue behind one that waits for the row of the first,
// and so share a statement. One of them was sold before, and one asks for more than there is.
type batchTrial struct {
	s      *env
	x      *cutStore
	first  inventory.Request
	orders []inventory.Request
	replay string // the key that was sold before
	tooBig string // the key of the order for too much

	told map[string]error
	mu   sync.Mutex
	wg   sync.WaitGroup
}

const batchStock = 100

// aBatchCutAnywhere is about Merge; the other strategy sells one by one.
func aBatchCutAnywhere(t *testing.T, s *env) {
	suite.Everywhere(t, suite.Cuts(false), func(c suite.Cut, k int) (bool, error) {
		name := fmt.Sprintf("%v %d", c, k)
		b := &batchTrial{s: s, told: map[string]error{}, replay: name + " replay", tooBig: name + " too big"}
		skus := []string{name + " a", name + " b"}
		for _, sku := range skus {
			if _, err := s.Restock(t.Context(), inventory.Adjustment{ID: sku, SKU: sku, Delta: batchStock}); err != nil {
				return false, err
			}
		}
		b.first = order(name+" first", skus[0], 1)
		b.orders = append(b.orders, order(b.replay, skus[0], 1), order(b.tooBig, skus[1], batchStock+1))
		for i := range 18 {
			b.orders = append(b.orders, order(fmt.Sprintf("%s %d", name, i), skus[i%2], 1))
		}
		if _, err := s.Reserve(t.Context(), b.orders[0]); err != nil {
			return false, err
		}
		o := s.o
		o.MaxInFlight = 1 // so that whatever comes after the first one queues
		x, err := s.openCut(t, c, k, o)
		if err != nil {
			return false, err
		}
		b.x = x
		err = b.run(t)
		struck := x.end()
		return struck || b.failed(), errors.Join(err, b.check(t, struck))
	})
	s.sound(t)
}

// run sends the orders. Every other caller gives up where the cut is that callers do.
func (b *batchTrial) run(t *testing.T) error {
	tx, err := b.s.db.BeginTx(t.Context(), nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	lock := fmt.Sprintf("SELECT 1 FROM dblock_stock WHERE sku = '%s' FOR UPDATE", b.first.SKU)
	if _, err := tx.ExecContext(t.Context(), lock); err != nil {
		return err
	}
	b.send(t.Context(), b.first)
	for i, r := range b.orders {
		ctx := t.Context()
		if i%2 == 0 {
			ctx = b.x.Ctx
		}
		b.send(ctx, r)
	}
	b.x.Arm()
	err = tx.Rollback()
	b.wg.Wait()
	return err
}

// send returns when the order is queued or in flight.
func (b *batchTrial) send(ctx context.Context, r inventory.Request) {
	w := newWaiter(ctx)
	b.wg.Go(func() {
		_, err := b.x.Reserve(w, r)
		w.Done() // a call that ended without waiting
		b.mu.Lock()
		defer b.mu.Unlock()
		b.told[r.Key] = err
	})
	<-w.waits
}

// failed tells whether somebody was told anything but sold or sold out.
func (b *batchTrial) failed() bool {
	for _, err := range b.told {
		if err != nil && !errors.Is(err, inventory.ErrSoldOut) {
			return true
		}
	}
	return false
}

func (b *batchTrial) check(t *testing.T, struck bool) error {
	var errs []error
	for i, r := range append(b.orders, b.first) {
		told := b.told[r.Key]
		if i%2 == 0 && r.Key != b.first.Key || !b.x.Cut.Cancels() {
			if r.Key != b.tooBig || !errors.Is(told, inventory.ErrSoldOut) {
				errs = append(errs, b.x.excused(struck, told))
			}
		} else if told != nil && (r.Key != b.tooBig || !errors.Is(told, inventory.ErrSoldOut)) {
			errs = append(errs, fmt.Errorf("%s: failed as another caller gave up: %w", r.Key, told))
		}
		switch {
		case r.Key == b.tooBig:
			if _, err := b.s.Reserve(t.Context(), r); !errors.Is(err, inventory.ErrSoldOut) {
				errs = append(errs, fmt.Errorf("an order for too much, sent again: %w", err))
			}
		case r.Key == b.replay && told != nil:
		default:
			errs = append(errs, b.s.honest(t, r, told))
		}
	}
	return errors.Join(append(errs, b.count(t))...)
}

// count expects each of the 20 orders that there was enough for once.
func (b *batchTrial) count(t *testing.T) error {
	books, err := b.s.Audit(t.Context(), b.orders[0].SKU, b.orders[1].SKU)
	if err != nil {
		return err
	}
	var sold, left int64
	for _, b := range books {
		sold += b.Sold
		left += b.Available
	}
	if sold != 20 || left != 2*batchStock-20 {
		return fmt.Errorf("20 orders for 1 of %d, sent again until sold: %+v", 2*batchStock, books)
	}
	return nil
}
