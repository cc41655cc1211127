package inventory

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock/inventory"
)

// aHeldOrderGoesItsWay takes one through every state, and every way that it does not go.
func aHeldOrderGoesItsWay(t *testing.T, s *env) {
	s.keepsBooks(t)
	s.stock(t, "sale", 10)
	for _, key := range []string{"confirmed", "cancelled", "expired", "swept"} {
		s.wants(t, op{What: toReserve, Request: held(key, "sale")}, reply{State: inventory.Held, SKU: "sale", Qty: 1, Ends: true})
		s.wants(t, op{What: toReserve, Request: held(key, "sale")}, reply{State: inventory.Held, SKU: "sale", Qty: 1, Ends: true, Replayed: true})
	}
	s.wantsBooks(t, "sale", 6, 4, 0)
	is := func(state inventory.State, replayed bool) reply {
		return reply{State: state, SKU: "sale", Qty: 1, Replayed: replayed}
	}
	for _, replayed := range []bool{false, true} {
		s.wants(t, onKey(toConfirm, "confirmed"), is(inventory.Sold, replayed))
		s.wants(t, onKey(toCancel, "cancelled"), is(inventory.Cancelled, replayed))
	}
	s.isDue(t, "swept")
	s.wants(t, op{What: toSweep, Most: 10}, reply{Qty: 1})
	s.wants(t, op{What: toSweep, Most: 10}, reply{})
	s.isDue(t, "expired")
	for key, kind := range map[string]string{"cancelled": isCancelled, "expired": isExpired, "swept": isExpired, "confirmed": isConfirmed, "none": isNotFound} {
		if key != "confirmed" {
			s.wants(t, onKey(toConfirm, key), reply{Kind: kind})
		}
		d := onKey(toExtend, key)
		d.Request.Hold = time.Hour
		s.wants(t, d, reply{Kind: kind})
	}
	s.wants(t, onKey(toCancel, "confirmed"), reply{Kind: isConfirmed})
	s.wants(t, onKey(toLookUp, "expired"), is(inventory.Expired, false))
	s.wantsBooks(t, "sale", 8, 1, 1)
	s.wants(t, onKey(toCancel, "expired"), is(inventory.Expired, false))
	s.wantsBooks(t, "sale", 9, 0, 1)
	s.wants(t, onKey(toCancel, "expired"), is(inventory.Expired, true))
	s.wants(t, onKey(toCancel, "swept"), is(inventory.Expired, true))
	for key, want := range map[string]reply{
		"confirmed": is(inventory.Sold, true),
		"cancelled": {State: inventory.Cancelled, SKU: "sale", Qty: 1, Replayed: true, Kind: isCancelled},
		"expired":   {State: inventory.Expired, SKU: "sale", Qty: 1, Replayed: true, Kind: isExpired},
		"swept":     {State: inventory.Expired, SKU: "sale", Qty: 1, Replayed: true, Kind: isExpired},
	} {
		s.wants(t, op{What: toReserve, Request: held(key, "sale")}, want)
	}
	s.wantsBooks(t, "sale", 9, 0, 1)
	s.balanced(t)
}

// aCancelledKeyIsNeverSold cancels orders that have not come yet.
func aCancelledKeyIsNeverSold(t *testing.T, s *env) {
	s.keepsBooks(t)
	s.stock(t, "sale", 100)
	s.stock(t, "other", 100)
	s.wants(t, onKey(toCancel, "k"), reply{State: inventory.Cancelled})
	s.wants(t, onKey(toCancel, "k"), reply{State: inventory.Cancelled, Replayed: true})
	s.wants(t, onKey(toLookUp, "k"), reply{State: inventory.Cancelled})
	for _, r := range []inventory.Request{order("k", "sale", 1), held("k", "sale"), order("k", "other", 3), order("k", "sale", 1000)} {
		s.wants(t, op{What: toReserve, Request: r},
			reply{State: inventory.Cancelled, SKU: r.SKU, Qty: r.Qty, Replayed: true, Kind: isCancelled})
	}
	cart := op{What: toCart, Request: inventory.Request{Key: "k"}, Lines: []inventory.Line{{SKU: "other", Qty: 1}, {SKU: "sale", Qty: 2}}}
	s.wants(t, cart, reply{State: inventory.Cancelled, Lines: cart.Lines, Replayed: true, Kind: isCancelled})
	s.wants(t, onKey(toConfirm, "k"), reply{Kind: isCancelled})
	var reqs []inventory.Request
	for i := range 100 {
		reqs = append(reqs, order(fmt.Sprintf("order-%d", i), "sale", 1))
		if i%2 == 0 {
			s.wants(t, onKey(toCancel, reqs[i].Key), reply{State: inventory.Cancelled})
		}
	}
	for i, a := range crowd(t.Context(), s.Store, reqs) {
		var is *inventory.StateError
		if i%2 == 0 && (!errors.As(a.err, &is) || is.State != inventory.Cancelled || is.Key != a.req.Key) || i%2 == 1 && a.err != nil {
			t.Errorf("%s: %v", a.req.Key, a.err)
		}
	}
	s.wantsBooks(t, "sale", 50, 0, 50)
	s.balanced(t)
}

// holdsAsLongAsItSays has the database's own clock let holds run out, and others be held on.
func holdsAsLongAsItSays(t *testing.T, s *env) {
	s.stock(t, "sale", 10)
	brief := held("brief", "sale")
	brief.Hold = time.Microsecond
	if _, err := s.Reserve(t.Context(), brief); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	res, err := s.Reserve(t.Context(), held("long", "sale"))
	if err != nil || res.ExpiresAt.Before(began.Add(time.Hour)) || res.ExpiresAt.After(time.Now().Add(time.Hour)) {
		t.Errorf("held for an hour from now: until %v, %v", res.ExpiresAt, err)
	}
	least := 3 * time.Hour
	for _, hold := range []time.Duration{3 * time.Hour, time.Minute} { // it does not get shorter
		if res, err = s.Extend(t.Context(), "long", hold); err != nil || res.State != inventory.Held ||
			res.ExpiresAt.Before(began.Add(least)) || res.ExpiresAt.After(time.Now().Add(3*time.Hour)) {
			t.Errorf("held for three hours from now: until %v, %v", res.ExpiresAt, err)
		}
		least -= time.Minute // what is left is told as of when it was asked for, which may have been long before
	}
	if got, err := s.Lookup(t.Context(), "long"); err != nil || got.ExpiresAt.After(time.Now().Add(3*time.Hour)) ||
		got.ExpiresAt.Before(began.Add(2*time.Hour)) {
		t.Errorf("looked up: %+v, %v", got, err)
	}
	if n, err := s.Sweep(t.Context(), 10); err != nil || n != 1 {
		t.Errorf("swept %d, %v: one has run out", n, err)
	}
	s.wants(t, onKey(toConfirm, "brief"), reply{Kind: isExpired})
	s.wantsBooks(t, "sale", 9, 1, 0)
	most := held("most", "sale")
	most.Hold = inventory.MaxHold
	if _, err := s.Reserve(t.Context(), most); err != nil {
		t.Error(err)
	}
	for _, hold := range []time.Duration{-1, time.Nanosecond, time.Second + 1, inventory.MaxHold + time.Microsecond} {
		r := held("bad", "sale")
		r.Hold = hold
		if _, err := s.Reserve(t.Context(), r); !errors.Is(err, inventory.ErrInvalid) {
			t.Errorf("a hold of %v: %v", hold, err)
		}
		if _, err := s.Extend(t.Context(), "long", hold); !errors.Is(err, inventory.ErrInvalid) {
			t.Errorf("extended by %v: %v", hold, err)
		}
	}
	s.sound(t)
}

// whatComesBackIsForSale restocks, cancels and sweeps while it is sold out.
func whatComesBackIsForSale(t *testing.T, s *env) {
	s.keepsBooks(t)
	other := s.open(t, s.o)
	s.stock(t, "sale", 2)
	left := func(n int64) reply {
		return reply{State: inventory.Refused, SKU: "sale", Qty: 1, Kind: isSoldOut, Detail: "sale, left " + inWords(n)}
	}
	sells := func(key string) {
		t.Helper()
		s.wants(t, op{What: toReserve, Request: held(key, "sale")}, reply{State: inventory.Held, SKU: "sale", Qty: 1, Ends: true})
	}
	sells("a")
	sells("b")
	s.wants(t, op{What: toReserve, Request: held("c", "sale")}, left(0))
	for i, comesBack := range []func() error{
		func() error { _, err := s.Cancel(t.Context(), "a"); return err },
		func() error { _, err := other.Cancel(t.Context(), "c0"); return err },
		func() error {
			_, err := other.Restock(t.Context(), inventory.Adjustment{ID: "more", SKU: "sale", Delta: 1})
			return err
		},
		func() error {
			s.isDue(t, "b")
			_, err := other.Sweep(t.Context(), 10)
			return err
		},
	} {
		if err := comesBack(); err != nil {
			t.Fatal(err)
		}
		sells(fmt.Sprintf("c%d", i))
		s.wants(t, op{What: toReserve, Request: held("late", "sale")}, left(0))
	}
	s.wantsBooks(t, "sale", 0, 3, 0)
	s.balanced(t)
}
