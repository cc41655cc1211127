package inventory

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/inventory"
)

const races = 200

// confirmRacesItsEnd confirms what is held just as its time is up and others sweep and cancel it: it is sold, or its units come
// back, and never both; whoever is told is told what is so.
func confirmRacesItsEnd(t *testing.T, s *env) {
	s.keepsBooks(t)
	other := s.open(t, s.o)
	s.stock(t, "sale", races)
	random := rand.New(rand.NewPCG(11, 0))
	outcomes := map[inventory.State]int{}
	for first := 0; first < races; first += 20 {
		var batch sync.WaitGroup
		var mu sync.Mutex
		for i := first; i < first+20; i++ {
			r := held(fmt.Sprintf("order-%d", i), "sale")
			r.Hold = time.Millisecond << random.IntN(11) // about as long as a call takes, whatever that is here
			batch.Go(func() {
				if _, err := s.Reserve(t.Context(), r); err != nil {
					t.Error(err)
				}
				state := s.race(t, other, r.Key, i%4 == 0)
				mu.Lock()
				defer mu.Unlock()
				outcomes[state]++
			})
		}
		batch.Wait()
	}
	for swept := 1; swept > 0; {
		var err error
		if swept, err = s.Sweep(t.Context(), 1000); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%v", outcomes)
	if outcomes[inventory.Sold] == 0 || outcomes[inventory.Expired] == 0 {
		t.Errorf("only one side has ever won: %v", outcomes)
	}
	s.wantsBooks(t, "sale", int64(races-outcomes[inventory.Sold]), 0, int64(outcomes[inventory.Sold]))
	s.balanced(t)
}

// race has somebody confirm an order while others end it, and returns what became of it, as it is recorded.
func (s *env) race(t *testing.T, other *inventory.Store, key string, cancel bool) inventory.State {
	var confirmed, cancelled error
	var both sync.WaitGroup
	both.Go(func() { _, confirmed = s.Confirm(t.Context(), key) })
	both.Go(func() {
		if cancel {
			_, cancelled = other.Cancel(t.Context(), key)
		} else if _, err := other.Sweep(t.Context(), 100); err != nil {
			t.Error(err)
		}
	})
	both.Wait()
	got, err := s.Lookup(t.Context(), key)
	if err != nil {
		t.Error(err)
	}
	right := map[inventory.State]bool{
		inventory.Sold:      confirmed == nil && (!cancel || errors.Is(cancelled, inventory.ErrAlreadyConfirmed)),
		inventory.Expired:   errors.Is(confirmed, inventory.ErrExpired) && cancelled == nil,
		inventory.Cancelled: errors.Is(confirmed, inventory.ErrCancelled) && cancel && cancelled == nil,
	}[got.State]
	if !right {
		t.Errorf("%s is %v; confirmed: %v; cancelled (%v): %v", key, got.State, confirmed, cancel, cancelled)
	}
	return got.State
}

// oneOfManyConfirmsAndCancels sends many of both for the same keys at once, from two Stores.
func oneOfManyConfirmsAndCancels(t *testing.T, s *env) {
	s.keepsBooks(t)
	stores := []*inventory.Store{s.Store, s.open(t, s.o)}
	const keys = 30
	s.stock(t, "sale", keys)
	var deeds []op
	for i := range keys {
		r := held(fmt.Sprintf("order-%d", i), "sale")
		s.sells(t, r)
		for n := range 8 {
			deeds = append(deeds, onKey([]string{toConfirm, toCancel}[(n/2+i)%2], r.Key))
		}
	}
	first, told := map[string]string{}, map[string]map[inventory.State]bool{}
	s.doAtOnce(t, stores, deeds, func(d op, r reply) {
		key := d.Request.Key
		if told[key] == nil {
			told[key] = map[inventory.State]bool{}
		}
		switch {
		case r.Kind == isConfirmed:
			r.State = inventory.Sold
		case r.Kind == isCancelled:
			r.State = inventory.Cancelled
		case r.Kind != "":
			t.Errorf("%s: %+v", key, r)
		case !r.Replayed && first[key] != "":
			t.Errorf("%s: both %s and %s were told that they were the first", key, first[key], d.What)
		case !r.Replayed:
			first[key] = d.What
		}
		told[key][r.State] = true
	})
	for key, states := range told {
		if len(states) != 1 || first[key] == "" {
			t.Errorf("%s: told %v, first was %q", key, states, first[key])
		}
	}
	s.balanced(t)
}

// cancelRacesItsOrder cancels orders as they are sent: each ends up sold nowhere, whichever came first.
func cancelRacesItsOrder(t *testing.T, s *env) {
	s.keepsBooks(t)
	stores := []*inventory.Store{s.Store, s.open(t, s.o)}
	s.stock(t, "sale", races)
	var deeds []op
	for i := range races {
		r := held(fmt.Sprintf("order-%d", i), "sale")
		r.Limit = int64(i % 3)
		deeds = append(deeds, op{What: toReserve, Request: r}, onKey(toCancel, r.Key))
	}
	rand.Shuffle(len(deeds), func(i, j int) { deeds[i], deeds[j] = deeds[j], deeds[i] })
	before := 0
	s.doAtOnce(t, stores, deeds, func(d op, r reply) {
		switch {
		case d.What == toCancel && (r.Kind != "" || r.State != inventory.Cancelled),
			d.What == toReserve && r.Kind != "" && r.Kind != isCancelled:
			t.Errorf("%s %s: %+v", d.What, d.Request.Key, r)
		case r.Kind == isCancelled:
			before++
		}
	})
	t.Logf("%d of %d were cancelled before they were made", before, races)
	s.wantsBooks(t, "sale", races, 0, 0)
	s.balanced(t)
}

// theLastUnitIsSold has buyers for exactly what there is, in mixed quantities, while some give theirs back and others come
// for what did: nobody is refused what is left.
func theLastUnitIsSold(t *testing.T, s *env) {
	s.keepsBooks(t)
	stores := []*inventory.Store{s.Store, s.open(t, s.o)}
	random := rand.New(rand.NewPCG(13, 0))
	var units int64
	var reqs []inventory.Request
	for i := range 300 {
		r := held(fmt.Sprintf("order-%d", i), "sale")
		if i%2 == 0 {
			r.Hold = 0
		}
		if r.Qty = 1 + random.Int64N(5); i%3 == 0 {
			r.Limit = r.Qty
		}
		units += r.Qty
		reqs = append(reqs, r)
	}
	s.stock(t, "sale", units)
	var orders sync.WaitGroup
	for i, r := range reqs {
		store := stores[i%2]
		orders.Go(func() {
			s.sellsAndSellsAgain(t, store, r, i)
		})
	}
	orders.Wait()
	if b := s.balance(t, "sale"); b.Available != 0 || b.Sold+b.Held != units {
		t.Errorf("%+v", b)
	}
	s.balanced(t)
}

// sellsAndSellsAgain gives back some of what is held, for another order of the same size.
func (s *env) sellsAndSellsAgain(t *testing.T, store *inventory.Store, r inventory.Request, i int) {
	if _, err := reserve(t.Context(), store, r); err != nil {
		t.Errorf("refused what there is: %v", err)
		return
	}
	if r.Hold == 0 {
		return
	}
	if i%4 == 1 {
		if _, err := store.Confirm(t.Context(), r.Key); err != nil {
			t.Error(err)
		}
		return
	}
	if _, err := store.Cancel(t.Context(), r.Key); err != nil {
		t.Error(err)
	}
	r.Key, r.Hold = r.Key+" again", 0
	if _, err := reserve(t.Context(), store, r); err != nil {
		t.Errorf("refused what has come back: %v", err)
	}
}

// sweepersGiveBackWhatExpired run in two Stores at once, beside those who buy what comes back.
func sweepersGiveBackWhatExpired(t *testing.T, s *env) {
	s.keepsBooks(t)
	s.stock(t, "sale", 300)
	var keys []string
	for _, a := range crowd(t.Context(), s.Store, ordersFor(300, "sale")) {
		if a.err != nil {
			t.Fatal(a.err)
		}
	}
	if _, err := s.Restock(t.Context(), inventory.Adjustment{ID: "more", SKU: "sale", Delta: 200}); err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		r := held(fmt.Sprintf("held-%d", i), "sale")
		r.Limit = 1
		s.sells(t, r)
		if i < 150 {
			keys = append(keys, r.Key)
		}
	}
	s.isDue(t, keys...)
	ctx, stop := context.WithCancel(t.Context())
	var sweepers sync.WaitGroup
	for _, store := range []*inventory.Store{s.Store, s.open(t, s.o)} {
		sweepers.Go(func() {
			if err := store.RunSweeper(ctx, 10*time.Millisecond); !errors.Is(err, context.Canceled) {
				t.Errorf("a sweeper ended with %v", err)
			}
		})
	}
	for i := 0; i < 150; { // who comes too early is told that it is sold out, and comes again
		_, err := s.Reserve(t.Context(), order(fmt.Sprintf("late-%d", i), "sale", 1))
		switch {
		case err == nil:
			i++
		case !errors.Is(err, inventory.ErrSoldOut):
			t.Fatal(err)
		}
	}
	if _, err := s.Reserve(t.Context(), order("too late", "sale", 1)); !errors.Is(err, inventory.ErrSoldOut) {
		t.Errorf("more came back than had expired: %v", err)
	}
	stop()
	sweepers.Wait()
	s.wantsBooks(t, "sale", 0, 50, 450)
	s.balanced(t)
}

// aPoisonedOrderFailsAloneBesideLimits has the host's own trigger refuse one buyer, in batches of every kind.
func aPoisonedOrderFailsAloneBesideLimits(t *testing.T, s *env) {
	s.keepsBooks(t)
	s.stock(t, "sale", 1000)
	s.stock(t, "other", 1000)
	s.poison(t)
	var deeds []op
	for i := range 240 {
		r := order(fmt.Sprintf("order-%d", i), "sale", 1)
		if i%3 == 0 {
			r.Hold = time.Hour
		}
		if r.Buyer = fmt.Sprint("buyer ", i%60); i%2 == 0 {
			r.Limit = 100
		}
		if i%60 == 42 {
			r.Buyer = "banned"
		}
		d := op{What: toReserve, Request: r}
		if i%5 == 0 {
			d.What, d.Lines = toCart, []inventory.Line{{SKU: "sale", Qty: 1, Limit: r.Limit}, {SKU: "other", Qty: 1}}
		}
		deeds = append(deeds, d)
	}
	s.doAtOnce(t, []*inventory.Store{s.Store}, deeds, func(d op, r reply) {
		banned := d.Request.Buyer == "banned"
		if banned && (!strings.Contains(r.Kind, inventory.ErrRejected.Error()) || !strings.Contains(r.Kind, "banned")) {
			t.Errorf("%s: %+v, want the trigger's own words", d.Request.Key, r)
		}
		if !banned && r.Kind != "" {
			t.Errorf("%s failed for another's sake: %+v", d.Request.Key, r)
		}
	})
	if b := s.balance(t, "sale"); b.Sold+b.Held != 236 {
		t.Errorf("%+v", b)
	}
	if n := s.count(t, "SELECT count(*) FROM dblock_quota WHERE buyer = 'banned' AND used > 0"); n != 0 {
		t.Errorf("%d limits count what was refused", n)
	}
	s.balanced(t)
}
