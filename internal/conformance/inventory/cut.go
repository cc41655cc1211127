package inventory

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/inventory"
)

// cutStore is a Store of its own for one trial, on a dialer that strikes.
type cutStore struct {
	*inventory.Store
	suite.Trial
	closePool func()
}

// openCut opens a cutStore, with a hook unless that is nil.
func (s *env) openCut(t *testing.T, c suite.Cut, k int, o inventory.Options, hook Hook) (x *cutStore, err error) {
	if c.Slow() {
		o.Timeout = suite.CutTimeout
	}
	x = &cutStore{}
	x.Begin(t.Context(), c, k)
	if hook == nil {
		x.Store, x.closePool, err = s.e.OpenOn(t.Context(), s.dsn, &x.Dialer, o)
	} else {
		x.Store, x.closePool, err = s.e.OpenHooked(t.Context(), s.dsn, &x.Dialer, o, hook)
	}
	return x, err
}

// end ends the trial: what is late arrives, and nothing of the Store's is left on the server.
func (x *cutStore) end() (struck bool) {
	struck = x.Heal()
	x.GiveUp()
	suite.ClosePool(&x.Dialer, x.closePool)
	return struck
}

// excused returns an error that the cut does not excuse. A single cut connection excuses none. A
// timeout as short as that of the slow cuts can also pass on a machine that is busy.
func (x *cutStore) excused(struck bool, err error) error {
	switch {
	case err == nil:
		return nil
	case x.Cut.Slow() && (suite.IsUnknown(err) || errors.Is(err, dblock.ErrBusy) || errors.Is(err, dblock.ErrUnavailable)):
		return nil
	case !struck:
		return fmt.Errorf("undisturbed, and yet: %w", err)
	case x.Cut.Cancels() && errors.Is(err, context.Canceled):
		return nil
	}
	return fmt.Errorf("an error without need: %w", err)
}

// cut does an op in a Store of its own, which the cut strikes, and compares the result with what is
// recorded.
func (s *env) cut(t *testing.T, c suite.Cut, k int, d op, want reply) (disturbed bool, err error) {
	x, err := s.openCut(t, c, k, s.o, nil)
	if err != nil {
		return false, err
	}
	x.Arm()
	_, told := d.once(x.Ctx, x.Store)
	struck := x.end()
	disturbed = struck || told != nil
	if want.Kind != "" && errors.Is(told, kinds[want.Kind]) {
		disturbed = struck
	} else {
		err = x.excused(struck, told)
	}
	return disturbed, errors.Join(err, s.honest(t, d, told, want))
}

// honest does an op again in a Store that nothing disturbs, which waits for what the server still
// does with it, and compares that with the error of the first time. Of want only State and Kind
// count.
func (s *env) honest(t *testing.T, d op, told error, want reply) error {
	again := d.do(t.Context(), s.Store)
	switch {
	case again.State != want.State || again.Kind != want.Kind:
		return fmt.Errorf("%s %s: %v, and again: %+v, want %+v", d.What, d.Request.Key, told, again, want)
	case d.What == toExtend: // done twice, it is done again
	case told == nil && !again.Replayed:
		return fmt.Errorf("%s %s: no error, and it was done again: %+v", d.What, d.Request.Key, again)
	case suite.Definite(told) && again.Replayed:
		return fmt.Errorf("%s %s: the error says that nothing was written, and it was: %w", d.What, d.Request.Key, told)
	}
	return nil
}

// Cuts runs the tests of cut orders alone, for a driver in another mode than its usual one.
func (e Inventory) Cuts(t *testing.T) {
	for name, way := range ways {
		t.Run("AnOrder/"+name, func(t *testing.T) { anOrderCutAnywhere(t, e.env(t, way)) })
	}
	t.Run("ABatch", func(t *testing.T) { aBatchCutAnywhere(t, e.env(t, inventory.Options{})) })
}

// anOrderCutAnywhere sells one order a trial, each of an SKU of its own.
func anOrderCutAnywhere(t *testing.T, s *env) {
	suite.Everywhere(t, suite.Cuts(false, true), func(c suite.Cut, k int) (bool, error) {
		key := fmt.Sprintf("%v %d", c, k)
		if err := restock(t, s.Store, key, key, 10); err != nil {
			return false, err
		}
		return s.cut(t, c, k, op{What: toReserve, Request: order(key, key, 2)}, reply{State: inventory.Sold})
	})
	for _, b := range suite.Must(s.Audit(t.Context()))(t) {
		assert.True(t, b.Sold == 2 && b.Available == 8, "one order for 2 of 10, sent again until sold: %+v", b)
	}
	s.sound(t)
}

// waiter is a context that reports the first wait for its end: a Store waits once it has the call
// in its queue, or in flight.
type waiter struct {
	context.Context
	once  sync.Once
	waits chan struct{}
}

func newWaiter(ctx context.Context) *waiter { return &waiter{Context: ctx, waits: make(chan struct{})} }

func (w *waiter) Done() <-chan struct{} {
	w.once.Do(func() { close(w.waits) })
	return w.Context.Done()
}

const batchStock = 100

// aBatchCutAnywhere has 20 orders for two SKUs queue behind one that waits for the row of the
// first, and so share a statement. One of them was sold before, and one asks for more than there
// is.
func aBatchCutAnywhere(t *testing.T, s *env) {
	suite.Everywhere(t, suite.Cuts(false), func(c suite.Cut, k int) (bool, error) {
		name := fmt.Sprintf("%v %d", c, k)
		skus := []string{name + " a", name + " b"}
		replay, tooBig := order(name+" replay", skus[0], 1), order(name+" too big", skus[1], batchStock+1)
		orders := []inventory.Request{order(name+" first", skus[0], 1), replay, tooBig}
		for i := range 18 {
			orders = append(orders, order(fmt.Sprintf("%s %d", name, i), skus[i%2], 1))
		}
		err := errors.Join(restock(t, s.Store, skus[0], skus[0], batchStock),
			restock(t, s.Store, skus[1], skus[1], batchStock), suite.Second(s.Reserve(t.Context(), replay)))
		if err != nil {
			return false, err
		}
		o := s.o
		o.MaxInFlight = 1 // so that what comes after the first one queues
		x, err := s.openCut(t, c, k, o, nil)
		if err != nil {
			return false, err
		}
		told, err := s.sendsBatch(t, x, orders)
		struck := x.end()
		disturbed, errs := struck, []error{err}
		for i, r := range orders {
			err := told[i]
			if r.Key == tooBig.Key {
				if errors.Is(err, inventory.ErrSoldOut) {
					err = nil
				}
				if again := suite.Second(s.Reserve(t.Context(), r)); !errors.Is(again, inventory.ErrSoldOut) {
					errs = append(errs, fmt.Errorf("an order for too much, sent again: %w", again))
				}
			} else if r.Key != replay.Key || err == nil {
				errs = append(errs, s.honest(t, op{What: toReserve, Request: r}, err, reply{State: inventory.Sold}))
			}
			disturbed = disturbed || err != nil
			if c.Cancels() && !givesUp(i) && err != nil {
				err = fmt.Errorf("%s failed as another caller gave up: %w", r.Key, err)
			} else {
				err = x.excused(struck, err)
			}
			errs = append(errs, err)
		}
		books, err := s.Audit(t.Context(), skus...)
		if len(books) != 2 || books[0].Sold+books[1].Sold != 20 || books[0].Available+books[1].Available != 2*batchStock-20 {
			errs = append(errs, err, fmt.Errorf("20 orders for 1 of %d, sent again until sold: %+v", 2*batchStock, books))
		}
		return disturbed, errors.Join(errs...)
	})
	s.sound(t)
}

// givesUp reports whether the caller of the i-th order gives up when the trial says so.
func givesUp(i int) bool { return i%2 == 1 }

// sendsBatch sends the orders behind a lock of the first one's stock, and returns the error of
// each.
func (s *env) sendsBatch(t *testing.T, x *cutStore, orders []inventory.Request) ([]error, error) {
	tx, err := s.db.BeginTx(t.Context(), nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }()
	stock := "SELECT 1 FROM dblock_stock WHERE sku = '" + orders[0].SKU + "' FOR UPDATE"
	if _, err := tx.ExecContext(t.Context(), stock); err != nil {
		return nil, err
	}
	told := make([]error, len(orders))
	var all sync.WaitGroup
	for i, r := range orders {
		w := newWaiter(t.Context())
		if givesUp(i) {
			w = newWaiter(x.Ctx)
		}
		all.Go(func() {
			_, told[i] = x.Reserve(w, r)
			w.Done() // a call that ended without waiting
		})
		<-w.waits
	}
	x.Arm()
	err = tx.Rollback()
	all.Wait()
	return told, err
}

// controlSellsTwice shows that the cuts find what they are for: they strike code that makes a new
// key for each attempt, and takes an error for "nothing was written".
func controlSellsTwice(t *testing.T, s *env) {
	var twice, late atomic.Int64
	cuts := []suite.Cut{{Mode: faultconn.CutBefore}, {Mode: faultconn.CutAfter}, {Mode: faultconn.Late}}
	suite.Everywhere(t, cuts, func(c suite.Cut, k int) (bool, error) {
		sku := fmt.Sprintf("%v %d", c, k)
		var dialer faultconn.Dialer
		db, err := suite.ConnectOn(s.e.Kind, s.dsn, &dialer)
		if err == nil {
			err = errors.Join(restock(t, s.Store, sku, sku, 10), db.PingContext(t.Context()))
		}
		if err != nil {
			return false, err
		}
		dialer.Arm(k, c.Mode, nil)
		err = naiveSale(t.Context(), db, sku)
		struck := dialer.Disarm()
		dialer.Release()
		if err != nil { // the server has ended the transaction when another one gets the row
			err = naiveSale(t.Context(), db, sku)
		}
		if closeErr := db.Close(); !struck { // a connection that was struck after the sale cannot be closed
			err = errors.Join(err, closeErr)
		}
		books, auditErr := s.Audit(t.Context(), sku)
		if err = errors.Join(err, auditErr); err != nil {
			return struck, err
		}
		if books[0].Sold > 1 && c.Mode == faultconn.Late {
			late.Add(1)
		} else if books[0].Sold > 1 {
			twice.Add(1)
		}
		if books[0].Drift() != 0 {
			err = fmt.Errorf("the control is to be wrong in one thing only: %+v", books[0])
		}
		return struck, err
	})
	assert.NotZero(t, twice.Load(), "orders sold twice")
	assert.NotZero(t, late.Load(), "orders sold twice as the commit came late")
}

// naiveSale is what is often written by hand.
func naiveSale(ctx context.Context, db *sql.DB, sku string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, fmt.Sprintf(insertSale, rand.Text(), sku)); err != nil {
		return err
	}
	take := "UPDATE dblock_stock SET available = available - 1 WHERE sku = '" + sku + "' AND available >= 1"
	res, err := tx.ExecContext(ctx, take)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n != 1 {
		return errors.Join(fmt.Errorf("%d rows", n), err)
	}
	return tx.Commit()
}
