package inventory

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/inventory"
)

// perBuyer is an order for one unit, of which its buyer may have as many as the limit.
func perBuyer(key, sku, buyer string, limit int64) inventory.Request {
	return inventory.Request{Key: key, SKU: sku, Buyer: buyer, Qty: 1, Limit: limit}
}

// heldPerBuyer is the same, held for an hour.
func heldPerBuyer(key, sku, buyer string, limit int64) inventory.Request {
	return inventory.Request{Key: key, SKU: sku, Buyer: buyer, Qty: 1, Limit: limit, Hold: time.Hour}
}

func (s *env) exceeds(t *testing.T, r inventory.Request, used int64) {
	t.Helper()
	_, err := s.Reserve(t.Context(), r)
	want := inventory.BuyerLimitError{Key: r.Key, SKU: r.SKU, Buyer: r.Buyer, Limit: r.Limit, Used: used, Wanted: r.Qty}
	assert.Equal(t, want, *suite.As[*inventory.BuyerLimitError](t, err))
	assert.NotErrorIs(t, err, inventory.ErrSoldOut, r.Key)
}

func (mergeTests) ALimitCountsWhatIsHeldAndSold(t *testing.T, s *env) {
	s.stock(t, "sale", 100)
	ann := func(key string, limit int64) inventory.Request { return perBuyer(key, "sale", "ann", limit) }
	for i := range 3 {
		s.sells(t, heldPerBuyer(fmt.Sprintf("k%d", i), "sale", "ann", 3))
	}
	gets(t, s.Store, ann("k0", 3), "replayed")
	gets(t, s.Store, ann("k0", 3), "replayed")
	s.exceeds(t, ann("k3", 3), 3)
	s.sells(t, perBuyer("bob", "sale", "bob", 3))
	s.sells(t, ann("of any number", 0))
	s.sells(t, ann("raised", 4))
	s.exceeds(t, ann("lowered", 2), 4)
	gets(t, s.Store, ann("k0", 1), "replayed")
	assert.NoError(t, suite.Second(s.Confirm(t.Context(), "k0")))
	s.exceeds(t, ann("k3", 4), 4)
	assert.NoError(t, suite.Second(s.Cancel(t.Context(), "k1")))
	s.exceeds(t, ann("lowered", 3), 3)
	s.sells(t, ann("in place of k1", 4))
	s.isDue(t, "k2")
	s.sells(t, ann("in place of k2", 4)) // that has expired, and is swept by this order
	s.wants(t, op{What: toSweep, Most: 10}, reply{})
	big := ann("too many at once", 5)
	big.Qty = 2
	s.exceeds(t, big, 4)
	s.wantsBooks(t, "sale", 94, 0, 6)
	s.sound(t)
}

// ALimitHoldsInACrowd has two Stores sell to one buyer at once, beside others. In the control a
// trigger keeps what buyers have at 0.
func (mergeTests) ALimitHoldsInACrowd(t *testing.T, s *env) {
	s.stock(t, "sale", 1000)
	stores := []*inventory.Store{s.Store, s.open(t, s.o)}
	for _, buyer := range []string{"ann", "control"} {
		for _, event := range map[string][]string{"control": {"INSERT", "UPDATE"}}[buyer] {
			forget := map[bool]string{true: "NEW.used := 0", false: "SET NEW.used = 0"}[s.Postgres()]
			s.Trigger(t, "BEFORE "+event, "dblock_quota", "NEW.used > 0", forget)
		}
		suite.Crowd(16, func(i int) {
			_, _ = stores[i%2].Reserve(t.Context(), perBuyer(fmt.Sprint(buyer, i), "sale", buyer, 1))
			_, _ = stores[i%2].Reserve(t.Context(), perBuyer(fmt.Sprint("other of ", buyer, i), "sale", fmt.Sprint(buyer, i), 1))
		})
		sold := s.Count(t, "SELECT count(*) FROM dblock_reservation WHERE buyer = '"+buyer+"'")
		assert.Equal(t, buyer == "ann", sold == 1, "%s has %d", buyer, sold)
	}
}

// ALimitWaitsForNoOtherStock has an expired hold of the buyer on an SKU whose stock is locked.
func (patientTests) ALimitWaitsForNoOtherStock(t *testing.T, s *env) {
	s.stock(t, "sale", 10)
	s.stock(t, "other", 10)
	s.sells(t, perBuyer("first", "sale", "ann", 1))
	s.sells(t, heldPerBuyer("other", "other", "ann", 2))
	s.isDue(t, "other")
	defer s.lockSKUs(t, []string{"other"})()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	assert.ErrorIs(t, suite.Second(s.Reserve(ctx, perBuyer("second", "sale", "ann", 1))), inventory.ErrLimitExceeded)
}

// ALimitCountsNoExpiredHold has buyers whose holds have expired order as much again, before any
// sweep. The Store knows of the holds, or does not.
func (mergeTests) ALimitCountsNoExpiredHold(t *testing.T, s *env) {
	s.stock(t, "sale", 1000)
	strict := s.o
	strict.RecordRefusals = true
	for name, store := range map[string]*inventory.Store{"its own": s.Store, "another": s.open(t, s.o)} {
		hold := func(buyer, key string) inventory.Request {
			return heldPerBuyer(name+" "+buyer+" "+key, "sale", name+" "+buyer, 2)
		}
		expired := func(buyer string) {
			t.Helper()
			s.sells(t, hold(buyer, "a"))
			s.sells(t, hold(buyer, "b"))
			s.exceeds(t, hold(buyer, "c"), 2)
			s.isDue(t, hold(buyer, "a").Key, hold(buyer, "b").Key)
		}
		expired("orders")
		sellsIn(t, store, hold("orders", "d"))
		sellsIn(t, store, hold("orders", "e"))
		s.exceeds(t, hold("orders", "f"), 2)

		expired("a cart")
		coupon := inventory.Line{SKU: "coupon", Qty: 1, Limit: 1, Unstocked: true}
		cart := cartOf(name+" cart", coupon, inventory.Line{SKU: "sale", Qty: 2, Limit: 2})
		cart.Request.Buyer = name + " a cart"
		assert.Equal(t, inventory.ReservationSold, cart.do(t.Context(), store).State, name)

		expired("a crowd")
		reqs := make([]inventory.Request, 30)
		for i := range reqs {
			reqs[i] = hold("a crowd", fmt.Sprint(i))
		}
		assert.Equal(t, map[string]int{"held": 2, isLimited: 28}, outcomes(crowd(t.Context(), store, reqs)), name)

		expired("recorded")
		recording := s.open(t, strict)
		sellsIn(t, recording, hold("recorded", "d"))
		sellsIn(t, recording, hold("recorded", "e"))
		for _, replayed := range []bool{false, true} {
			res, err := recording.Reserve(t.Context(), hold("recorded", "f"))
			assert.ErrorIs(t, err, inventory.ErrLimitExceeded, name)
			assert.Equal(t, replayed, res.Replayed, name)
		}
	}
	s.sound(t)
}

// ALimitCountsNoExpiredHoldBehindOthers has thousands of other holds expire before the buyer's.
func (mergeTests) ALimitCountsNoExpiredHoldBehindOthers(t *testing.T, s *env) {
	s.stock(t, "sale", 10)
	order := func(key string) inventory.Request { return heldPerBuyer(key, "sale", "ann", 2) }
	s.sells(t, order("a"))
	s.sells(t, order("b"))
	values := make([]string, 3000)
	for i := range values {
		values[i] = fmt.Sprintf("('old-%d', 'old', 'other', 1, 1, '1999-01-01 00:00:00')", i)
	}
	s.Exec(t, "INSERT INTO dblock_reservation (reservation_key, sku, buyer, qty, state, expires_at) VALUES "+
		strings.Join(values, ", "))
	s.exceeds(t, order("c"), 2)
	s.isDue(t, "a", "b")
	s.sells(t, order("c"))
	s.sells(t, order("d"))
	s.exceeds(t, order("e"), 2)
	s.wantsBooks(t, "sale", 8, 2, 0)
}

func (mergeTests) ALimitNeedsABuyer(t *testing.T, s *env) {
	s.stock(t, "sale", 10)
	gets(t, s.Store, perBuyer("no buyer", "sale", "", 1), isInvalid)
	gets(t, s.Store, perBuyer("a negative limit", "sale", "ann", -1), isInvalid)
	gets(t, s.Store, perBuyer("a huge limit", "sale", "ann", inventory.MaxQty+1), isInvalid)
	s.wantsBooks(t, "sale", 10, 0, 0)
}

// WhatNeedsNoStockIsLimited has a coupon without stock that each buyer may use once.
func (mergeTests) WhatNeedsNoStockIsLimited(t *testing.T, s *env) {
	coupon := perBuyer("k", "coupon", "ann", 1)
	coupon.Unstocked = true
	s.sells(t, coupon)
	coupon.Key = "k2"
	s.exceeds(t, coupon, 1)
	coupon.Buyer = "bob"
	s.sells(t, coupon)
	gets(t, s.Store, perBuyer("k3", "coupon", "ann", 2), isUnknownSKU)
	gets(t, s.Store, perBuyer("k", "coupon", "ann", 2), isReused)
	assert.Empty(t, suite.Must(s.Audit(t.Context()))(t), "the books have what takes no stock")
	s.sound(t)
}

// AStoreKnowsNoMoreThanTheBooks has two Stores. Each does what the other cannot know.
func (mergeTests) AStoreKnowsNoMoreThanTheBooks(t *testing.T, s *env) {
	s.stock(t, "sale", 1000)
	here, there := s.Store, s.open(t, s.o)

	s.sells(t, heldPerBuyer("bob 1", "sale", "bob", 1))
	s.exceeds(t, perBuyer("bob 2", "sale", "bob", 1), 1)
	require.NoError(t, suite.Second(there.Cancel(t.Context(), "bob 1")))
	s.getsInACrowd(t, here, perBuyer("bob 3", "sale", "bob", 1), "sold")
	s.getsInACrowd(t, there, perBuyer("bob 4", "sale", "bob", 1), isLimited)

	first, second := perBuyer("carl 1", "sale", "carl", 3), perBuyer("carl 2", "sale", "carl", 3)
	s.sells(t, first)
	s.getsInACrowd(t, there, second, "sold")
	s.exceeds(t, perBuyer("carl 3", "sale", "carl", 2), 2)
	for _, store := range []*inventory.Store{here, there} {
		for _, r := range []inventory.Request{first, second} {
			s.getsInACrowd(t, store, r, "replayed")
			r.Qty = 2
			s.getsInACrowd(t, store, r, isReused)
		}
	}
	s.sound(t)
}

// AStoreAnswersNothingFromMemory deletes what was sold, as a server does that loses it.
func (mergeTests) AStoreAnswersNothingFromMemory(t *testing.T, s *env) {
	s.stock(t, "sale", 1000)
	first, second := perBuyer("ann 1", "sale", "ann", 1), perBuyer("ann 2", "sale", "ann", 1)
	s.sells(t, first)
	s.Exec(t, "DELETE FROM dblock_reservation")
	s.Exec(t, "DELETE FROM dblock_quota")
	s.Exec(t, "UPDATE dblock_stock SET available = 1000")
	s.getsInACrowd(t, s.Store, first, "sold")
	s.getsInACrowd(t, s.Store, second, isLimited)
	s.Exec(t, "DELETE FROM dblock_quota")
	s.Exec(t, "DELETE FROM dblock_reservation WHERE buyer = 'ann'")
	s.Exec(t, "UPDATE dblock_stock SET available = available + 1")
	s.getsInACrowd(t, s.Store, second, "sold")
	s.wantsBooks(t, "sale", 1000-3*30-1, 0, 3*30+1)
}

// getsInACrowd sends an order beside 30 of new buyers with the same limit, which are sold.
func (s *env) getsInACrowd(t *testing.T, store *inventory.Store, r inventory.Request, want string) {
	t.Helper()
	s.crowds++
	reqs := append(ordersOf(fmt.Sprintf("new in crowd %d,", s.crowds), 30, r.SKU), r)
	for i := range reqs {
		reqs[i].Limit = r.Limit
	}
	got := crowd(t.Context(), store, reqs)
	assert.Equal(t, want, got[30].outcome(), r.Key)
	assert.Equal(t, map[string]int{"sold": 30}, outcomes(got[:30]), r.Key)
}
