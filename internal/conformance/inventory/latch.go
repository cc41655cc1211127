package inventory

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/inventory"
)

const (
	longLatch  = 10 * time.Second       // nothing below waits for its end
	shortLatch = 200 * time.Millisecond // this ends
)

// aLatchRefusesWithoutLocks locks the row of an SKU that is sold out. Orders for it are refused nonetheless, and what was sold is known.
func aLatchRefusesWithoutLocks(t *testing.T, s *env) {
	store := s.open(t, inventory.Options{Latch: longLatch, Timeout: time.Minute})
	s.stock(t, "sale", 3)
	s.sells(t, order("sold elsewhere", "sale", 1))
	for _, key := range []string{"sold", "sold, too"} {
		if _, err := store.Reserve(t.Context(), order(key, "sale", 1)); err != nil {
			t.Fatal(err)
		}
	}
	isLatched(t, store, "sale")
	unlock := s.hold(t, store, "sale")
	for i := range 100 {
		r := order(fmt.Sprintf("late-%d", i), "sale", 1)
		r.Limit, r.Hold = int64(i%3), time.Duration(i%2)*time.Hour
		if err := refusal(store, r); err == nil || !err.Latched || err.SKU != "sale" || err.Wanted != 1 {
			t.Fatalf("%s: %v", r.Key, err)
		}
	}
	for _, key := range []string{"sold", "sold, too", "sold elsewhere"} {
		if r, err := store.Reserve(t.Context(), order(key, "sale", 1)); err != nil || !r.Replayed {
			t.Errorf("%s: %+v, %v", key, r, err)
		}
	}
	unlock()
	gift := order("gift", "sale", 1)
	gift.Unstocked = true
	if _, err := store.Reserve(t.Context(), gift); err != nil {
		t.Errorf("what needs no stock: %v", err)
	}
	s.sound(t)
}

// aLatchLooksKeysUp has another Store record keys while this one knows that the SKU is sold out. Each key gets the answer that is
// recorded.
func aLatchLooksKeysUp(t *testing.T, s *env) {
	store := s.open(t, inventory.Options{Latch: longLatch, Timeout: time.Minute})
	s.stock(t, "sale", 1)
	s.stock(t, "other", 1)
	s.sells(t, order("sold", "sale", 1))
	isLatched(t, store, "sale")
	s.restock(t, "elsewhere", "sale", 1)
	s.sells(t, order("sold elsewhere", "sale", 1))
	s.sells(t, order("other", "other", 1))
	if _, err := s.Cancel(t.Context(), "cancelled"); err != nil {
		t.Fatal(err)
	}
	if r, err := store.Reserve(t.Context(), order("sold elsewhere", "sale", 1)); err != nil || !r.Replayed {
		t.Errorf("a sale of another Store: %+v, %v", r, err)
	}
	for key, want := range map[string]error{"sold": inventory.ErrKeyReused, "other": inventory.ErrKeyReused, "cancelled": inventory.ErrCancelled} {
		r := order(key, "sale", 1)
		if key == "sold" {
			r.Qty = 2
		}
		if _, err := store.Reserve(t.Context(), r); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", key, err, want)
		}
	}
	if out := refusal(store, order("late", "sale", 1)); out == nil || !out.Latched {
		t.Errorf("the control: the latch had ended: %v", out)
	}
	s.sound(t)
}

// refusal is what an order is told that is sold out; nil: it is told something else.
func refusal(store *inventory.Store, r inventory.Request) *inventory.SoldOutError {
	_, err := store.Reserve(context.Background(), r)
	var out *inventory.SoldOutError
	if !errors.As(err, &out) {
		return nil
	}
	return out
}

// isLatched waits until a Store refuses from memory.
func isLatched(t *testing.T, store *inventory.Store, sku string) {
	t.Helper()
	n := 0
	suite.Until(t, "it refuses from memory", func() bool {
		n++
		out := refusal(store, order(fmt.Sprintf("latch %s %d", sku, n), sku, 1))
		if out == nil {
			t.Fatal("an order for what is sold out was not refused")
		}
		return out.Latched
	})
}

// aLatchEndsWithWhatComesIn has units come in by every way there is: those of its own Store's are for sale at once, those of
// another one's a little later.
func aLatchEndsWithWhatComesIn(t *testing.T, s *env) {
	store := s.open(t, inventory.Options{Latch: longLatch, Timeout: time.Minute})
	brief := s.open(t, inventory.Options{Latch: shortLatch, Timeout: time.Minute})
	s.stock(t, "sale", 2)
	hold := held("held", "sale")
	s.sells(t, hold)
	s.sells(t, order("sold", "sale", 1))
	n := 0
	sellsNow := func(name string) {
		t.Helper()
		n++
		r := held(fmt.Sprintf("%s %d", name, n), "sale")
		if _, err := store.Reserve(t.Context(), r); err != nil {
			t.Errorf("%s: the unit that came in is refused: %v", name, err)
		}
		hold = r
	}
	for name, comesIn := range map[string]func() error{
		"a restock": func() error {
			_, err := store.Restock(t.Context(), inventory.Adjustment{ID: "restock", SKU: "sale", Delta: 1})
			return err
		},
		"a cancel": func() error {
			_, err := store.Cancel(t.Context(), hold.Key)
			return err
		},
		"a sweep": func() error {
			s.isDue(t, hold.Key)
			_, err := store.Sweep(t.Context(), 10)
			return err
		},
		"a repair": func() error {
			s.exec(t, "UPDATE dblock_reservation SET state = 3 WHERE reservation_key = '"+hold.Key+"'")
			_, err := store.Repair(t.Context(), "sale")
			return err
		},
	} {
		isLatched(t, store, "sale")
		if err := comesIn(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		sellsNow(name)
	}
	isLatched(t, brief, "sale")
	s.restock(t, "elsewhere", "sale", 1)
	suite.Until(t, "what came in elsewhere is sold", func() bool {
		n++
		return refusal(brief, order(fmt.Sprintf("brief %d", n), "sale", 1)) == nil
	})
	records := s.open(t, inventory.Options{Latch: longLatch, RecordRefusals: true})
	for i := range 50 {
		if out := refusal(records, order(fmt.Sprintf("recorded %d", i), "sale", 1)); out == nil || out.Latched {
			t.Fatalf("a Store that records refusals: %+v", out)
		}
	}
	s.sound(t)
}

// aLatchKnowsCarts refuses a cart of which one line is sold out, and knows again one that was sold.
func aLatchKnowsCarts(t *testing.T, s *env) {
	store := s.open(t, inventory.Options{Latch: longLatch, Timeout: time.Minute})
	s.stock(t, "sale", 1)
	s.stock(t, "other", 10)
	lines := []inventory.Line{{SKU: "other", Qty: 1}, {SKU: "sale", Qty: 1}}
	if _, err := s.ReserveAll(t.Context(), inventory.Cart{Key: "sold", Lines: lines}); err != nil {
		t.Fatal(err)
	}
	isLatched(t, store, "sale")
	_, err := store.ReserveAll(t.Context(), inventory.Cart{Key: "late", Lines: lines})
	var out *inventory.SoldOutError
	if !errors.As(err, &out) || !out.Latched || out.SKU != "sale" {
		t.Errorf("a cart that comes too late: %v", err)
	}
	if r, err := store.ReserveAll(t.Context(), inventory.Cart{Key: "sold", Lines: lines}); err != nil || !r.Replayed {
		t.Errorf("the cart that was sold: %+v, %v", r, err)
	}
	if _, err := store.ReserveAll(t.Context(), inventory.Cart{Key: "rest", Lines: lines[:1]}); err != nil {
		t.Errorf("the other SKU: %v", err)
	}
	s.wantsBooks(t, "other", 8, 0, 2)
	s.sound(t)
}
