package inventory

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/inventory"
)

// perBuyer is an order for one unit of which its buyer may have so many.
func perBuyer(key, sku, buyer string, limit int64) inventory.Request {
	return inventory.Request{Key: key, SKU: sku, Buyer: buyer, Qty: 1, Limit: limit}
}

func (s *env) exceeds(t *testing.T, r inventory.Request, used int64) {
	t.Helper()
	_, err := s.Reserve(t.Context(), r)
	var limit *inventory.LimitError
	if !errors.As(err, &limit) || !errors.Is(err, inventory.ErrLimitExceeded) || errors.Is(err, inventory.ErrSoldOut) ||
		limit.Used != used || limit.Limit != r.Limit || limit.Wanted != r.Qty || limit.Buyer != r.Buyer || limit.Replayed {
		t.Errorf("%s: got %v, want: used %d", r.Key, err, used)
	}
}

func (s *env) sells(t *testing.T, r inventory.Request) {
	t.Helper()
	if res, err := s.Reserve(t.Context(), r); err != nil || res.Replayed {
		t.Errorf("%s: %+v, %v", r.Key, res, err)
	}
}

// aBuyerGetsNoMoreThanTheLimit has 50 orders of one buyer's at once, through two Stores.
func aBuyerGetsNoMoreThanTheLimit(t *testing.T, s *env) {
	s.keepsBooks(t)
	s.stock(t, "sale", 1000)
	stores := []*inventory.Store{s.Store, s.open(t, s.o)}
	for _, limit := range []int64{1, 3, 7} {
		for _, r := range []inventory.Request{{Hold: time.Hour}, {}, {Unstocked: true}} {
			name := fmt.Sprintf("limit %d, hold %v, unstocked %v", limit, r.Hold, r.Unstocked)
			if sold, fresh := s.buysAtOnce(t, stores, r, name, limit, 50); sold != limit || fresh != limit {
				t.Errorf("%s: %d were told sold, %d of them anew", name, sold, fresh)
			}
		}
	}
	s.balanced(t)
}

// buysAtOnce sends one buyer's orders, and as many of another buyer's.
func (s *env) buysAtOnce(t *testing.T, stores []*inventory.Store, r inventory.Request, name string, limit int64, n int) (sold, fresh int64) {
	t.Helper()
	answers := make(chan []told)
	for i, store := range stores {
		var reqs []inventory.Request
		for k := range n {
			r := r
			r.Key, r.SKU, r.Qty, r.Limit = fmt.Sprintf("%s, order %d of store %d", name, k, i), "sale", 1, limit
			if r.Buyer = name; k%5 == 0 {
				r.Buyer = r.Key
			}
			reqs = append(reqs, r)
		}
		go func() { answers <- crowd(t.Context(), store, reqs) }()
	}
	for range stores {
		for _, a := range <-answers {
			switch {
			case a.req.Buyer != name && a.err != nil:
				t.Errorf("%s, of a buyer who has none: %v", a.req.Key, a.err)
			case a.req.Buyer != name:
			case a.err == nil:
				sold++
				if !a.res.Replayed {
					fresh++
				}
			case !errors.Is(a.err, inventory.ErrLimitExceeded):
				t.Errorf("%s: %v", a.req.Key, a.err)
			}
		}
	}
	return sold, fresh
}

// controlExceedsLimits is the control: where the database does not count, the same crowd gets more.
func controlExceedsLimits(t *testing.T, e Inventory) {
	s := e.env(t, inventory.Options{})
	s.stock(t, "sale", 1000)
	controls["limits that are not counted"](t, s)
	if sold, _ := s.buysAtOnce(t, []*inventory.Store{s.Store}, inventory.Request{}, "all", 3, 50); sold <= 3 {
		t.Errorf("%d were sold: the test of limits could not fail", sold)
	}
}

// aLimitCountsWhatIsHeldAndSold gives limits back, and changes them.
func aLimitCountsWhatIsHeldAndSold(t *testing.T, s *env) {
	s.keepsBooks(t)
	s.stock(t, "sale", 100)
	ann := func(key string, limit int64) inventory.Request { return perBuyer(key, "sale", "ann", limit) }
	for i := range 3 {
		r := ann(fmt.Sprintf("k%d", i), 3)
		r.Hold = time.Hour
		s.sells(t, r)
	}
	for range 3 { // what is sent again does not count again, nor is it refused
		if res, err := s.Reserve(t.Context(), ann("k0", 3)); err != nil || !res.Replayed {
			t.Errorf("sent again: %+v, %v", res, err)
		}
	}
	s.exceeds(t, ann("k3", 3), 3)
	s.sells(t, perBuyer("bob", "sale", "bob", 3))
	s.sells(t, ann("of any number", 0))
	s.sells(t, ann("raised", 4))
	s.exceeds(t, ann("lowered", 2), 4)
	if res, err := s.Reserve(t.Context(), ann("k0", 1)); err != nil || !res.Replayed {
		t.Errorf("sent again under a lower limit: %+v, %v", res, err)
	}
	if _, err := s.Confirm(t.Context(), "k0"); err != nil {
		t.Error(err)
	}
	s.exceeds(t, ann("k3", 4), 4)
	if _, err := s.Cancel(t.Context(), "k1"); err != nil {
		t.Error(err)
	}
	s.exceeds(t, ann("lowered", 3), 3)
	s.sells(t, ann("in place of k1", 4))
	s.isDue(t, "k2")
	s.sells(t, ann("in place of k2", 4)) // k2 has expired and is not swept
	if n, err := s.Sweep(t.Context(), 10); err != nil || n != 0 {
		t.Errorf("swept %d, %v", n, err)
	}
	big := ann("too many at once", 5)
	big.Qty = 2
	s.exceeds(t, big, 4)
	s.wantsBooks(t, "sale", 94, 0, 6)
	s.balanced(t)
}

// aLimitCountsNoExpiredHold has a buyer whose holds have expired order as much again, though nothing was swept: one order, a cart and a
// crowd, from a Store that knows of the holds and from one that does not, and from one that records refusals.
func aLimitCountsNoExpiredHold(t *testing.T, s *env) {
	s.keepsBooks(t)
	s.stock(t, "sale", 1000)
	strict := s.o
	strict.RecordRefusals = true
	for name, store := range map[string]*inventory.Store{"its own": s.Store, "another": s.open(t, s.o)} {
		hold := func(buyer, key string) inventory.Request {
			r := perBuyer(name+" "+buyer+" "+key, "sale", name+" "+buyer, 2)
			r.Hold = time.Hour
			return r
		}
		expired := func(buyer string) {
			t.Helper()
			s.sells(t, hold(buyer, "a"))
			s.sells(t, hold(buyer, "b"))
			s.exceeds(t, hold(buyer, "c"), 2)
			s.isDue(t, hold(buyer, "a").Key, hold(buyer, "b").Key)
		}
		expired("ann")
		for _, key := range []string{"d", "e"} {
			if res, err := store.Reserve(t.Context(), hold("ann", key)); err != nil || res.Replayed {
				t.Errorf("%s: an order: %+v, %v", name, res, err)
			}
		}
		s.exceeds(t, hold("ann", "f"), 2)
		expired("bob")
		cart := inventory.Cart{Key: name + " cart", Buyer: name + " bob", Lines: []inventory.Line{{SKU: "coupon", Qty: 1, Limit: 1, Unstocked: true}, {SKU: "sale", Qty: 2, Limit: 2}}}
		if res, err := store.ReserveAll(t.Context(), cart); err != nil || res.State != inventory.Sold {
			t.Errorf("%s: a cart: %+v, %v", name, res, err)
		}
		expired("zoe")
		var reqs []inventory.Request
		for i := range 30 {
			reqs = append(reqs, hold("zoe", fmt.Sprint(i)))
		}
		sold := 0
		for _, a := range crowd(t.Context(), store, reqs) {
			switch {
			case a.err == nil:
				sold++
			case !errors.Is(a.err, inventory.ErrLimitExceeded):
				t.Errorf("%s: %v", a.req.Key, a.err)
			}
		}
		if sold != 2 {
			t.Errorf("%s: %d were sold to a crowd of one buyer's", name, sold)
		}
		expired("eve")
		recording := s.open(t, strict)
		for _, key := range []string{"d", "e"} {
			if res, err := recording.Reserve(t.Context(), hold("eve", key)); err != nil || res.Replayed {
				t.Errorf("%s: where refusals are recorded: %+v, %v", name, res, err)
			}
		}
		for _, replayed := range []bool{false, true} {
			if res, err := recording.Reserve(t.Context(), hold("eve", "f")); !errors.Is(err, inventory.ErrLimitExceeded) || res.Replayed != replayed {
				t.Errorf("%s: one too many where refusals are recorded: %+v, %v", name, res, err)
			}
		}
	}
	s.balanced(t)
}

// aLimitCountsNoExpiredHoldBehindOthers has thousands of holds of other buyers expire before those of a buyer who orders as much again.
func aLimitCountsNoExpiredHoldBehindOthers(t *testing.T, s *env) {
	s.stock(t, "sale", 10)
	order := func(key string) inventory.Request {
		r := perBuyer(key, "sale", "ann", 2)
		r.Hold = time.Hour
		return r
	}
	s.sells(t, order("a"))
	s.sells(t, order("b"))
	values := make([]string, 3000)
	for i := range values {
		values[i] = fmt.Sprintf("('old-%d', 'old', 'other', 1, 1, '1999-01-01 00:00:00')", i)
	}
	s.exec(t, "INSERT INTO dblock_reservation (reservation_key, sku, buyer, qty, state, expires_at) VALUES "+strings.Join(values, ", "))
	s.exceeds(t, order("c"), 2)
	s.isDue(t, "a", "b")
	s.sells(t, order("c"))
	s.sells(t, order("d"))
	s.exceeds(t, order("e"), 2)
	s.wantsBooks(t, "sale", 8, 2, 0)
}

// aLimitNeedsABuyer: nobody could be told from anybody.
func aLimitNeedsABuyer(t *testing.T, s *env) {
	s.stock(t, "sale", 10)
	for name, r := range map[string]inventory.Request{
		"no buyer":         perBuyer("k", "sale", "", 1),
		"a negative limit": perBuyer("k", "sale", "ann", -1),
		"a huge limit":     perBuyer("k", "sale", "ann", inventory.MaxQty+1),
	} {
		if _, err := s.Reserve(t.Context(), r); !errors.Is(err, inventory.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.wantsBooks(t, "sale", 10, 0, 0)
}

// whatNeedsNoStockIsLimited is a coupon that everybody may use once, and of which there is no stock.
func whatNeedsNoStockIsLimited(t *testing.T, s *env) {
	coupon := perBuyer("k", "coupon", "ann", 1)
	coupon.Unstocked = true
	s.sells(t, coupon)
	second := coupon
	second.Key = "k2"
	s.exceeds(t, second, 1)
	second.Buyer = "bob"
	s.sells(t, second)
	stocked := perBuyer("k3", "coupon", "ann", 2)
	if _, err := s.Reserve(t.Context(), stocked); !errors.Is(err, inventory.ErrUnknownSKU) {
		t.Errorf("a coupon with stock: %v", err)
	}
	stocked.Key = coupon.Key
	if _, err := s.Reserve(t.Context(), stocked); !errors.Is(err, inventory.ErrKeyReused) {
		t.Errorf("the same with stock: %v", err)
	}
	if books, err := s.Audit(t.Context()); err != nil || len(books) != 0 {
		t.Errorf("the books hold what takes no stock: %+v, %v", books, err)
	}
	s.sound(t)
}
