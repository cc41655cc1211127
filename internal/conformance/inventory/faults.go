package inventory

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/inventory"
)

// ALockedSKUDoesNotStallTheRest has another transaction hold one SKU: its orders wait, and those of
// another SKU are sold meanwhile. An order whose time is up is ErrBusy, and is not sold.
func (patientTests) ALockedSKUDoesNotStallTheRest(t *testing.T, s *env) {
	s.stock(t, "locked", 50)
	s.stock(t, "free", 150)
	release := s.lockSKUs(t, []string{"locked"})
	o := s.o
	o.Timeout = 300 * time.Millisecond
	hasty := func() error { return suite.Second(s.open(t, o).Reserve(t.Context(), order("hasty", "locked", 1))) }
	suite.Until(t, "it is busy", func() bool { return errors.Is(hasty(), dblock.ErrBusy) })
	mixed := append(ordersOf("order-l", 50, "locked"), ordersOf("order-f", 50, "free")...)
	ends := suite.Begin(func() ([]requestResult, error) { return crowd(t.Context(), s.Store, mixed), nil })
	for _, r := range ordersOf("late", 100, "free") {
		s.sells(t, r)
	}
	s.Until(t, "SELECT count(*) FROM dblock_reservation", 150)
	s.wantsBooks(t, "locked", 50, 0, 0)
	release()
	for _, a := range suite.Must(ends())(t) {
		assert.NoError(t, a.err, a.req.Key)
	}
	s.wantsBooks(t, "locked", 0, 0, 50)
	s.sound(t)
}

// APoisonedOrderFailsAlone has the host's trigger refuse one buyer, in batches of any kind.
func (tests) APoisonedOrderFailsAlone(t *testing.T, s *env) {
	s.stock(t, "sale", 1000)
	s.stock(t, "other", 1000)
	s.Trigger(t, "BEFORE INSERT", "dblock_reservation", "NEW.buyer = 'banned'", suite.Raise(s.Kind, "45001", "banned"))
	var ops []op
	for i, r := range ordersFor(240, "sale") {
		r.Buyer, r.Limit, r.Hold = fmt.Sprint("buyer ", i%60), int64(i%2)*100, time.Duration(i%3)*time.Hour
		if i%60 == 42 {
			r.Buyer = "banned"
		}
		d := op{What: toReserve, Request: r}
		if i%5 == 0 {
			d.What, d.Lines = toCart, []inventory.Line{{SKU: "sale", Qty: 1, Limit: r.Limit}, {SKU: "other", Qty: 1}}
		}
		ops = append(ops, d)
	}
	s.doAtOnce(t, []*inventory.Store{s.Store}, ops, func(d op, r reply) {
		rejected := strings.Contains(r.Kind, inventory.ErrRejected.Error()) && strings.Contains(r.Kind, "banned")
		if d.Request.Buyer != "banned" {
			assert.Empty(t, r.Kind, d.Request.Key)
		} else {
			assert.True(t, rejected, "%s: %+v", d.Request.Key, r)
		}
	})
	b := s.balance(t, "sale")
	assert.EqualValues(t, 236, b.Sold+b.Held)
	assert.Zero(t, s.Count(t, "SELECT count(*) FROM dblock_quota WHERE buyer = 'banned' AND used > 0"))
	s.sound(t)
}

// Cuts runs the test of cut orders alone, for a driver in another mode than its usual one.
func (e Inventory) Cuts(t *testing.T) {
	for name, way := range ways {
		t.Run("AnOrder/"+name, func(t *testing.T) { cutTests{}.AnOrderCutAnywhere(t, e.env(t, way)) })
	}
}

// AnOrderCutAnywhere sells one order a trial, each of an SKU of its own.
func (cutTests) AnOrderCutAnywhere(t *testing.T, s *env) {
	suite.Everywhere(t, suite.Cuts(false, true), func(c suite.Cut, k int) (bool, error) {
		key := fmt.Sprintf("%v %d %v", c, k, c.Timeout)
		if err := restock(t, s.Store, key, key, 10); err != nil {
			return false, err
		}
		return s.cut(t, c, k, order(key, key, 2))
	})
	for _, b := range suite.Must(s.Audit(t.Context()))(t) {
		assert.True(t, b.Sold == 2 && b.Available == 8, "one order for 2 of 10, sent again until sold: %+v", b)
	}
	s.sound(t)
}

// cut orders in a Store of its own, which the cut strikes. Then it orders again in an undisturbed
// Store, which waits for the end of the first order. The two answers agree.
func (s *env) cut(t *testing.T, c suite.Cut, k int, r inventory.Request) (struck bool, err error) {
	o, d := s.o, &faultconn.Dialer{}
	if c.Slow() {
		o.Timeout = c.Timeout
	}
	store, closePool, err := s.e.OpenOn(t.Context(), s.DSN, d, o)
	if err != nil {
		return false, err
	}
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	if c.Cold {
		d.CloseAll()
	}
	d.Arm(k, c.Mode, giveUp)
	_, told := store.Reserve(ctx, r)
	struck = d.Disarm()
	d.Release()
	giveUp()
	suite.ClosePool(d, closePool)
	again, err := s.Reserve(t.Context(), r)
	if told == nil && !again.Replayed || suite.Definite(told) && again.Replayed {
		err = fmt.Errorf("the first answer is %v, the second %+v", told, again)
	}
	late := suite.IsUnknown(told) || errors.Is(told, dblock.ErrBusy) || errors.Is(told, dblock.ErrUnavailable)
	switch excused := c.Slow() && late || c.Cancels() && errors.Is(told, context.Canceled); {
	case err != nil, told == nil, struck && excused: // a cut connection excuses no error
	case late && !struck:
		return false, suite.ErrLate
	default:
		err = fmt.Errorf("struck %v, and an error without need: %w", struck, told)
	}
	return struck, err
}

// waiter is a context that reports the first wait for its end: a Store waits once it has the call
// in its queue, or in flight.
type waiter struct {
	context.Context
	once  sync.Once
	waits chan struct{}
}

func (w *waiter) Done() <-chan struct{} {
	w.once.Do(func() { close(w.waits) })
	return w.Context.Done()
}
