package inventory

import (
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock/inventory"
)

// allotmentsAreStock sells, restocks, writes off and rebalances beside an allotment, which is never in the way of anybody.
func allotmentsAreStock(t *testing.T, s *env) {
	s.keepsBooks(t)
	s.stock(t, "sale", 100)
	store := s.open(t, inventory.Options{Allotment: 40})
	sell := func(key string, qty int64) {
		t.Helper()
		if _, err := store.Reserve(t.Context(), order(key, "sale", qty)); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	sell("one", 1)
	s.wantsAllotted(t, 60, 39)
	s.restock(t, "up", "sale", 20)
	s.wantsAllotted(t, 80, 39)
	if err := s.Rebalance(t.Context(), "sale", 4); err != nil {
		t.Error(err)
	}
	s.wantsAllotted(t, 80, 39)
	if err := s.Rebalance(t.Context(), "sale", 1); err != nil {
		t.Error(err)
	}
	spread := s.open(t, inventory.Options{Strategy: inventory.SkipLocked, Buckets: 3})
	if _, err := spread.Restock(t.Context(), inventory.Adjustment{ID: "spread", SKU: "sale", Delta: 30}); err != nil {
		t.Error(err)
	}
	s.wantsAllotted(t, 110, 39)
	s.restock(t, "down", "sale", -10)
	s.wantsAllotted(t, 100, 39) // what is shared goes first
	s.restock(t, "far down", "sale", -110)
	s.wantsAllotted(t, 0, 29)
	s.restock(t, "all but 3", "sale", -26)
	sell("the rest of the allotment", 2)
	s.wantsAllotted(t, 0, 1)
	cart := inventory.Cart{Key: "cart", Lines: []inventory.Line{{SKU: "sale", Qty: 1}, {SKU: "other", Qty: 1}}}
	s.restock(t, "other", "other", 1)
	if _, err := store.ReserveAll(t.Context(), cart); err != nil {
		t.Errorf("a cart that finds its unit in an allotment: %v", err)
	}
	s.wantsAllotted(t, 0, 0)
	s.restock(t, "again", "sale", 50)
	sell("again", 5)
	s.wantsAllotted(t, 10, 35)
	if err := store.Close(t.Context()); err != nil {
		t.Error(err)
	}
	s.wantsAllotted(t, 45, 0) // Close gives back
	s.balanced(t)
}

// allotmentsKnowHoldsAndLimits has several Stores with allotments hold and sell for buyers who have limits, with what is given back
// sold again, to the last unit.
func allotmentsKnowHoldsAndLimits(t *testing.T, s *env) {
	s.keepsBooks(t)
	const buyers, limit = 60, 3
	s.stock(t, "sale", buyers*limit)
	stores := []*inventory.Store{
		s.openClosed(t, inventory.Options{Allotment: 25, Timeout: time.Minute}), s.openClosed(t, inventory.Options{Allotment: 25, Timeout: time.Minute}), s.Store,
	}
	var deeds []op
	for i := range buyers * (limit + 2) {
		r := order(fmt.Sprintf("order-%d", i), "sale", 1)
		r.Buyer, r.Limit, r.Hold = fmt.Sprintf("buyer-%d", i%buyers), limit, time.Duration(i/buyers%2)*time.Hour
		deeds = append(deeds, op{What: toReserve, Request: r})
	}
	granted, holds := 0, []op{}
	s.doAtOnce(t, stores, deeds, func(d op, r reply) {
		switch {
		case r.Kind == "" && !r.Replayed:
			granted++
			if d.Request.Hold > 0 {
				holds = append(holds, onKey(toCancel, d.Request.Key))
			}
		case r.Kind != isLimited:
			t.Errorf("%s: %+v", d.Request.Key, r)
		}
	})
	if granted != buyers*limit {
		t.Errorf("%d were granted, want %d", granted, buyers*limit)
	}
	s.doAtOnce(t, stores, holds, func(d op, r reply) {
		if r.State != inventory.Cancelled {
			t.Errorf("%s: %+v", d.Request.Key, r)
		}
	})
	again := make([]op, len(holds))
	for i := range holds {
		again[i] = op{What: toReserve, Request: order(fmt.Sprintf("again-%d", i), "sale", 1)}
	}
	s.doAtOnce(t, stores, again, func(d op, r reply) {
		if r.State != inventory.Sold {
			t.Errorf("%s was refused what had come back: %+v", d.Request.Key, r)
		}
	})
	s.wantsBooks(t, "sale", 0, 0, buyers*limit)
	s.balanced(t)
}
