package inventory

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/inventory"
)

// AHeldOrderGoesItsWay takes holds through every state, and tries every impossible change.
func (mergeTests) AHeldOrderGoesItsWay(t *testing.T, s *env) {
	s.stock(t, "sale", 10)
	is := func(state inventory.ReservationState, replayed bool) reply {
		return reply{State: state, SKU: "sale", Qty: 1, Replayed: replayed, Ends: state == inventory.ReservationHeld}
	}
	reserves := func(key string, want reply) {
		t.Helper()
		s.wants(t, op{What: toReserve, Request: held(key, "sale")}, want)
	}
	for _, key := range []string{"confirmed", "cancelled", "expired", "swept"} {
		reserves(key, is(inventory.ReservationHeld, false))
		reserves(key, is(inventory.ReservationHeld, true))
	}
	s.wantsBooks(t, "sale", 6, 4, 0)
	for _, replayed := range []bool{false, true} {
		s.wants(t, onKey(toConfirm, "confirmed"), is(inventory.ReservationSold, replayed))
		s.wants(t, onKey(toCancel, "cancelled"), is(inventory.ReservationCancelled, replayed))
	}
	s.isDue(t, "swept")
	s.wants(t, op{What: toSweep, Most: 10}, reply{Qty: 1})
	s.wants(t, op{What: toSweep, Most: 10}, reply{})
	s.isDue(t, "expired")
	for key, kind := range map[string]string{
		"cancelled": isCancelled, "expired": isExpired, "swept": isExpired, "confirmed": isConfirmed, "none": isNotFound,
	} {
		if key != "confirmed" {
			s.wants(t, onKey(toConfirm, key), reply{Kind: kind})
		}
		s.wants(t, op{What: toExtend, Request: held(key, "")}, reply{Kind: kind})
	}
	s.wants(t, onKey(toCancel, "confirmed"), reply{Kind: isConfirmed})
	s.wants(t, onKey(toLookUp, "expired"), is(inventory.ReservationExpired, false))
	s.wantsBooks(t, "sale", 8, 1, 1)
	s.wants(t, onKey(toCancel, "expired"), is(inventory.ReservationExpired, false))
	s.wantsBooks(t, "sale", 9, 0, 1)
	s.wants(t, onKey(toCancel, "expired"), is(inventory.ReservationExpired, true))
	s.wants(t, onKey(toCancel, "swept"), is(inventory.ReservationExpired, true))
	reserves("confirmed", is(inventory.ReservationSold, true))
	reserves("cancelled", reply{State: inventory.ReservationCancelled, SKU: "sale", Qty: 1, Replayed: true, Kind: isCancelled})
	reserves("expired", reply{State: inventory.ReservationExpired, SKU: "sale", Qty: 1, Replayed: true, Kind: isExpired})
	reserves("swept", reply{State: inventory.ReservationExpired, SKU: "sale", Qty: 1, Replayed: true, Kind: isExpired})
	s.wantsBooks(t, "sale", 9, 0, 1)
	s.sound(t)
}

// ACancelledKeyIsNeverSold cancels orders that have not come yet.
func (mergeTests) ACancelledKeyIsNeverSold(t *testing.T, s *env) {
	s.stock(t, "sale", 100)
	s.stock(t, "other", 100)
	s.wants(t, onKey(toCancel, "k"), reply{State: inventory.ReservationCancelled})
	s.wants(t, onKey(toCancel, "k"), reply{State: inventory.ReservationCancelled, Replayed: true})
	s.wants(t, onKey(toLookUp, "k"), reply{State: inventory.ReservationCancelled})
	for _, r := range []inventory.Request{
		order("k", "sale", 1), held("k", "sale"), order("k", "other", 3), order("k", "sale", 1000),
	} {
		s.wants(t, op{What: toReserve, Request: r},
			reply{State: inventory.ReservationCancelled, SKU: r.SKU, Qty: r.Qty, Replayed: true, Kind: isCancelled})
	}
	cart := cartOf("k", inventory.Line{SKU: "other", Qty: 1}, inventory.Line{SKU: "sale", Qty: 2})
	s.wants(t, cart, reply{State: inventory.ReservationCancelled, Lines: cart.Lines, Replayed: true, Kind: isCancelled})
	s.wants(t, onKey(toConfirm, "k"), reply{Kind: isCancelled})
	reqs := ordersFor(100, "sale")
	for i := 0; i < len(reqs); i += 2 {
		s.wants(t, onKey(toCancel, reqs[i].Key), reply{State: inventory.ReservationCancelled})
	}
	for i, a := range crowd(t.Context(), s.Store, reqs) {
		if i%2 == 1 {
			assert.NoError(t, a.err, a.req.Key)
			continue
		}
		is := suite.As[*inventory.StateError](t, a.err)
		assert.True(t, is.State == inventory.ReservationCancelled && is.Key == a.req.Key, "%s: %v", a.req.Key, a.err)
	}
	s.wantsBooks(t, "sale", 50, 0, 50)
	s.sound(t)
}

// HoldsAsLongAsItSays has holds end by the database's own clock, and others extended.
func (mergeTests) HoldsAsLongAsItSays(t *testing.T, s *env) {
	s.stock(t, "sale", 10)
	holds := func(key string, hold time.Duration) (inventory.Reservation, error) {
		r := held(key, "sale")
		r.Hold = hold
		return s.Reserve(t.Context(), r)
	}
	require.NoError(t, suite.Second(holds("brief", time.Microsecond)))
	began := time.Now()
	endsWithin := func(res inventory.Reservation, least, most time.Duration) {
		t.Helper()
		assert.False(t, res.ExpiresAt.Before(began.Add(least)), "it ends at %v", res.ExpiresAt)
		assert.False(t, res.ExpiresAt.After(time.Now().Add(most)), "it ends at %v", res.ExpiresAt)
	}
	endsWithin(suite.Must(holds("long", time.Hour))(t), time.Hour, time.Hour)
	endsWithin(suite.Must(s.Extend(t.Context(), "long", 3*time.Hour))(t), 3*time.Hour, 3*time.Hour)
	res := suite.Must(s.Extend(t.Context(), "long", time.Minute))(t) // it does not get shorter
	assert.Equal(t, inventory.ReservationHeld, res.State)
	endsWithin(res, 2*time.Hour, 3*time.Hour) // what is left counts from the call, which may have been long before
	endsWithin(suite.Must(s.Lookup(t.Context(), "long"))(t), 2*time.Hour, 3*time.Hour)
	assert.Equal(t, 1, suite.Must(s.Sweep(t.Context(), 10))(t), "one has ended")
	s.wants(t, onKey(toConfirm, "brief"), reply{Kind: isExpired})
	s.wantsBooks(t, "sale", 9, 1, 0)
	assert.NoError(t, suite.Second(holds("most", inventory.MaxHold)))
	for _, bad := range []time.Duration{-1, time.Nanosecond, time.Second + 1, inventory.MaxHold + time.Microsecond} {
		assert.ErrorIs(t, suite.Second(holds("bad", bad)), dblock.ErrInvalid, bad)
		assert.ErrorIs(t, suite.Second(s.Extend(t.Context(), "long", bad)), dblock.ErrInvalid, bad)
	}
	s.sound(t)
}

// WhatComesBackIsForSale restocks, cancels and sweeps while it is sold out.
func (mergeTests) WhatComesBackIsForSale(t *testing.T, s *env) {
	other := s.open(t, s.o)
	s.stock(t, "sale", 2)
	soldOut := func() {
		t.Helper()
		s.wants(t, op{What: toReserve, Request: held("late", "sale")},
			reply{State: inventory.ReservationRefused, SKU: "sale", Qty: 1, Kind: isSoldOut, Detail: "sale, left 0"})
	}
	s.sells(t, held("a", "sale"))
	s.sells(t, held("b", "sale"))
	soldOut()
	for i, comesBack := range []func() error{
		func() error { return suite.Second(s.Cancel(t.Context(), "a")) },
		func() error { return suite.Second(other.Cancel(t.Context(), "c0")) },
		func() error { return restock(t, other, "more", "sale", 1) },
		func() error { s.isDue(t, "b"); return suite.Second(other.Sweep(t.Context(), 10)) },
	} {
		require.NoError(t, comesBack())
		s.sells(t, held(fmt.Sprintf("c%d", i), "sale"))
		soldOut()
	}
	s.wantsBooks(t, "sale", 0, 3, 0)
	s.sound(t)
}
