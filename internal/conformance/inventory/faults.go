package inventory

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
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
	assert.ErrorIs(t, suite.Second(s.open(t, o).Reserve(t.Context(), order("hasty", "locked", 1))), dblock.ErrBusy)
	var mixed []inventory.Request
	for i := range 100 {
		mixed = append(mixed, order(fmt.Sprintf("order-%d", i), []string{"locked", "free"}[i%2], 1))
	}
	ends := suite.Begin(func() ([]told, error) { return crowd(t.Context(), s.Store, mixed), nil })
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
