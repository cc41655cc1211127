package inventory

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/inventory"
)

// aStoreKnowsNoMoreThanTheBooks has two Stores, as of two processes, of which each does what the other can't know.
func aStoreKnowsNoMoreThanTheBooks(t *testing.T, s *env) {
	s.keepsBooks(t)
	s.stock(t, "sale", 1000)
	here, there := s.Store, s.open(t, s.o)

	first := perBuyer("bob 1", "sale", "bob", 1)
	first.Hold = time.Hour
	s.sells(t, first)
	s.exceeds(t, perBuyer("bob 2", "sale", "bob", 1), 1)
	if _, err := there.Cancel(t.Context(), "bob 1"); err != nil {
		t.Fatal(err)
	}
	s.toldInACrowd(t, here, perBuyer("bob 3", "sale", "bob", 1), nil)
	s.toldInACrowd(t, there, perBuyer("bob 4", "sale", "bob", 1), inventory.ErrLimitExceeded)

	s.sells(t, perBuyer("carl 1", "sale", "carl", 3))
	s.toldInACrowd(t, there, perBuyer("carl 2", "sale", "carl", 3), nil)
	s.exceeds(t, perBuyer("carl 3", "sale", "carl", 2), 2)

	for _, store := range []*inventory.Store{here, there} {
		for _, sold := range []inventory.Request{perBuyer("carl 1", "sale", "carl", 3), perBuyer("carl 2", "sale", "carl", 3)} {
			if res := s.toldInACrowd(t, store, sold, nil); !res.Replayed {
				t.Errorf("%s was sold again", sold.Key)
			}
			sold.Qty = 2
			s.toldInACrowd(t, store, sold, inventory.ErrKeyReused)
		}
	}

	s.balanced(t)
}

// aStoreAnswersNothingFromMemory: what somebody takes out of the books, or loses with the server that had it, was never sold.
func aStoreAnswersNothingFromMemory(t *testing.T, s *env) {
	s.stock(t, "sale", 1000)
	ann := perBuyer("ann 1", "sale", "ann", 1)
	s.sells(t, ann)
	s.exec(t, "DELETE FROM dblock_reservation")
	s.exec(t, "DELETE FROM dblock_quota")
	s.exec(t, "UPDATE dblock_stock SET available = 1000")
	if res := s.toldInACrowd(t, s.Store, ann, nil); res.Replayed {
		t.Error("it is remembered as sold")
	}
	s.toldInACrowd(t, s.Store, perBuyer("ann 2", "sale", "ann", 1), inventory.ErrLimitExceeded)
	s.exec(t, "DELETE FROM dblock_quota")
	s.exec(t, "DELETE FROM dblock_reservation WHERE buyer = 'ann'")
	s.exec(t, "UPDATE dblock_stock SET available = available + 1")
	s.toldInACrowd(t, s.Store, perBuyer("ann 2", "sale", "ann", 1), nil)
	s.wantsBooks(t, "sale", 1000-3*30-1, 0, 3*30+1)
}

// anSKUComesIntoBeingAmongItsOrders: what is sold of it is in the books, and who was told that it is unknown has used nothing.
func anSKUComesIntoBeingAmongItsOrders(t *testing.T, s *env) {
	stores := []*inventory.Store{s.Store, s.open(t, s.o), s.open(t, s.o), s.open(t, s.o)}
	for n := range 40 {
		sku := fmt.Sprint("sku ", n)
		var sold atomic.Int64
		var all sync.WaitGroup
		for i, store := range stores {
			all.Go(func() {
				name := fmt.Sprintf("buyer %d of %d", i, n)
				for k := range 3 {
					switch _, err := store.Reserve(t.Context(), perBuyer(fmt.Sprint(name, k), sku, name, 2)); {
					case err == nil:
						sold.Add(1)
					case !errors.Is(err, inventory.ErrUnknownSKU) && !errors.Is(err, inventory.ErrLimitExceeded):
						t.Errorf("%s: %v", name, err)
					}
				}
			})
		}
		s.stock(t, sku, 100)
		all.Wait()
		s.wantsBooks(t, sku, 100-sold.Load(), 0, sold.Load())
	}
	s.sound(t)
}

// toldInACrowd sends an order beside many of buyers who are new, and with a limit as it: these are sold to.
func (s *env) toldInACrowd(t *testing.T, store *inventory.Store, r inventory.Request, want error) (got inventory.Reservation) {
	t.Helper()
	s.crowds++
	reqs := []inventory.Request{r}
	for i := range 30 {
		name := fmt.Sprintf("new %d of crowd %d", i, s.crowds)
		reqs = append(reqs, perBuyer(name, r.SKU, name, r.Limit))
	}
	for _, a := range crowd(t.Context(), store, reqs) {
		switch {
		case a.req.Key == r.Key:
			if got = a.res; !errors.Is(a.err, want) {
				t.Errorf("%s: %v, want %v", r.Key, a.err, want)
			}
		case a.err != nil || a.res.Replayed:
			t.Errorf("%s: %+v, %v", a.req.Key, a.res, a.err)
		}
	}
	return got
}

// LimitsNeedTheirConstraints takes out, one after the other, what refuses a batch that is sold without a look: a buyer whom the
// process does not know gets more then.
func (e Inventory) LimitsNeedTheirConstraints(t *testing.T) {
	for constraint, holds := range map[string]bool{"": true, "dblock_quota_pkey": false, "dblock_quota_used": false} {
		s := e.env(t, inventory.Options{})
		s.stock(t, "sale", 1000)
		s.sells(t, perBuyer("bob 1", "sale", "bob", 1))
		stranger := s.open(t, s.o) // which checks the tables
		if constraint != "" {
			s.exec(t, "ALTER TABLE dblock_quota DROP CONSTRAINT "+constraint)
		}
		_, err := stranger.Reserve(t.Context(), perBuyer("bob 2", "sale", "bob", 1))
		if errors.Is(err, inventory.ErrLimitExceeded) != holds || !holds && err != nil {
			t.Errorf("without the constraint %q: %v", constraint, err)
		}
	}
}
