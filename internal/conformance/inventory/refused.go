package inventory

import (
	"errors"
	"fmt"
	"testing"

	"github.com/dblock-go/dblock/inventory"
)

// aRefusalWaitsForNoLock has orders ask for more than is left while another transaction has the row locked. They are refused, and a
// recorded key gets its recorded answer. The control is what the Store has not seen: units that came in through another one are sold.
func aRefusalWaitsForNoLock(t *testing.T, s *env) {
	store := s.open(t, patient(inventory.Merge))
	s.stock(t, "sale", 7)
	sold := order("sold elsewhere", "sale", 4)
	s.sells(t, sold)
	tooMany := func(key string) {
		t.Helper()
		if out := refusal(store, order(key, "sale", 4)); out == nil || out.Available != 3 || out.Latched {
			t.Fatalf("%s: %v", key, out)
		}
	}
	tooMany("the first shows what is left")
	unlock := s.hold(t, store, "sale")
	for i := range 10 {
		tooMany(fmt.Sprint("too many ", i))
	}
	if r, err := store.Reserve(t.Context(), sold); err != nil || !r.Replayed {
		t.Errorf("a recorded key: %+v, %v", r, err)
	}
	unlock()
	cart := inventory.Cart{Key: "cart", Lines: []inventory.Line{{SKU: "sale", Qty: 4}, {SKU: "other", Qty: 1}}}
	s.stock(t, "other", 1)
	_, err := store.ReserveAll(t.Context(), cart)
	if out := (*inventory.SoldOutError)(nil); !errors.As(err, &out) || len(out.Short) != 1 || out.Short[0] != (inventory.Shortage{SKU: "sale", Wanted: 4, Available: 3}) {
		t.Errorf("a cart: %v", err)
	}
	s.restock(t, "elsewhere", "sale", 1)
	if _, err := store.Reserve(t.Context(), order("too many 0", "sale", 4)); err != nil {
		t.Errorf("the control: %v", err)
	}
	s.sound(t)
}
