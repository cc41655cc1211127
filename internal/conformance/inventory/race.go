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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/inventory"
)

const races = 200

// confirmRacesItsEnd confirms holds at the moment of their end, beside sweeps and cancellations.
// Each hold is sold, or its units come back, and each answer is true.
func confirmRacesItsEnd(t *testing.T, s *env) {
	s.keepsBooks(t)
	other := s.open(t, s.o)
	s.stock(t, "sale", races)
	random := rand.New(rand.NewPCG(11, 0))
	var mu sync.Mutex
	results := map[inventory.State]int{}
	for first := 0; first < races; first += 20 {
		reqs := make([]inventory.Request, 20)
		for i := range reqs {
			reqs[i] = held(fmt.Sprintf("order-%d", first+i), "sale")
			reqs[i].Hold = time.Millisecond << random.IntN(11) // about as long as a call takes, however fast the machine is
		}
		suite.Crowd(len(reqs), func(i int) {
			_, err := s.Reserve(t.Context(), reqs[i])
			assert.NoError(t, err)
			state := s.race(t, other, reqs[i].Key, i%4 == 0)
			mu.Lock()
			defer mu.Unlock()
			results[state]++
		})
	}
	s.sweepAll(t)
	sold := int64(results[inventory.Sold])
	assert.True(t, sold > 0 && results[inventory.Expired] > 0, "only one side has ever won: %v", results)
	s.wantsBooks(t, "sale", races-sold, 0, sold)
	s.balanced(t)
}

func (s *env) sweepAll(t *testing.T) {
	t.Helper()
	for swept := 1; swept > 0; {
		swept = suite.Must(s.Sweep(t.Context(), 1000))(t)
	}
}

// race confirms an order while another Store cancels it, or sweeps. It returns the state that is
// recorded.
func (s *env) race(t *testing.T, other *inventory.Store, key string, cancel bool) inventory.State {
	confirm := suite.Begin(func() (inventory.Reservation, error) { return s.Confirm(t.Context(), key) })
	var cancelled error
	if cancel {
		_, cancelled = other.Cancel(t.Context(), key)
	} else {
		_, err := other.Sweep(t.Context(), 100)
		assert.NoError(t, err)
	}
	_, confirmed := confirm()
	got, err := s.Lookup(t.Context(), key)
	assert.NoError(t, err)
	want := map[inventory.State][2]string{
		inventory.Sold: {"", isConfirmed}, inventory.Expired: {isExpired, ""}, inventory.Cancelled: {isCancelled, ""},
	}[got.State]
	if !cancel {
		want[1] = ""
	}
	assert.Equal(t, want, [2]string{kindOf(confirmed), kindOf(cancelled)}, "%s is %v", key, got.State)
	return got.State
}

// oneOfManyConfirmsAndCancels sends many of both for each key at once, from two Stores.
func oneOfManyConfirmsAndCancels(t *testing.T, s *env) {
	s.keepsBooks(t)
	const keys = 30
	s.stock(t, "sale", keys)
	var ops []op
	for i := range keys {
		r := held(fmt.Sprintf("order-%d", i), "sale")
		s.sells(t, r)
		for n := range 8 {
			ops = append(ops, onKey([]string{toConfirm, toCancel}[(n/2+i)%2], r.Key))
		}
	}
	fresh, states := map[string]int{}, map[string]map[inventory.State]bool{}
	s.doAtOnce(t, []*inventory.Store{s.Store, s.open(t, s.o)}, ops, func(d op, r reply) {
		key := d.Request.Key
		switch {
		case r.Kind == isConfirmed:
			r.State = inventory.Sold
		case r.Kind == isCancelled:
			r.State = inventory.Cancelled
		case r.Kind != "":
			t.Errorf("%s: %+v", key, r)
		case !r.Replayed:
			fresh[key]++
		}
		if states[key] == nil {
			states[key] = map[inventory.State]bool{}
		}
		states[key][r.State] = true
	})
	for key := range states {
		assert.Len(t, states[key], 1, key)
		assert.Equal(t, 1, fresh[key], key)
	}
	s.balanced(t)
}

// cancelRacesItsOrder sends orders and their cancellations at once. None stays sold, whichever
// comes first.
func cancelRacesItsOrder(t *testing.T, s *env) {
	s.keepsBooks(t)
	s.stock(t, "sale", races)
	var ops []op
	for i := range races {
		r := held(fmt.Sprintf("order-%d", i), "sale")
		r.Limit = int64(i % 3)
		ops = append(ops, op{What: toReserve, Request: r}, onKey(toCancel, r.Key))
	}
	rand.Shuffle(len(ops), func(i, j int) { ops[i], ops[j] = ops[j], ops[i] })
	s.doAtOnce(t, []*inventory.Store{s.Store, s.open(t, s.o)}, ops, func(d op, r reply) {
		cancels := d.What == toCancel
		if cancels && r.State != inventory.Cancelled || r.Kind != "" && (cancels || r.Kind != isCancelled) {
			t.Errorf("%s %s: %+v", d.What, d.Request.Key, r)
		}
	})
	s.wantsBooks(t, "sale", races, 0, 0)
	s.balanced(t)
}

// theLastUnitIsSold has orders for exactly the stock, some of which are cancelled for others: none
// is refused what is left.
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
	suite.Crowd(len(reqs), func(i int) {
		r, store := reqs[i], stores[i%2]
		_, err := reserve(t.Context(), store, r)
		switch {
		case err != nil || r.Hold == 0:
		case i%4 == 1:
			_, err = store.Confirm(t.Context(), r.Key)
		default:
			_, cancelled := store.Cancel(t.Context(), r.Key)
			r.Key, r.Hold = r.Key+" again", 0
			_, err = reserve(t.Context(), store, r)
			err = errors.Join(cancelled, err)
		}
		assert.NoError(t, err, r.Key)
	})
	b := s.balance(t, "sale")
	s.wantsBooks(t, "sale", 0, b.Held, units-b.Held)
	s.balanced(t)
}

// sweepersGiveBackWhatExpired runs sweepers in two Stores, beside orders for the units that come
// back.
func sweepersGiveBackWhatExpired(t *testing.T, s *env) {
	const sold, holds, expired = 60, 80, 60
	s.keepsBooks(t)
	s.stock(t, "sale", sold+holds)
	sellsTo(t, s.Store, ordersFor(sold, "sale"))
	reqs := make([]inventory.Request, holds)
	var keys []string
	for i := range reqs {
		reqs[i] = held(fmt.Sprintf("held-%d", i), "sale")
		reqs[i].Limit = 1
		keys = append(keys, reqs[i].Key)
	}
	sellsTo(t, s.Store, reqs)
	s.isDue(t, keys[:expired]...)
	ctx, stop := context.WithCancel(t.Context())
	var sweepers sync.WaitGroup
	for _, store := range []*inventory.Store{s.Store, s.open(t, s.o)} {
		sweepers.Go(func() { assert.ErrorIs(t, store.RunSweeper(ctx, 10*time.Millisecond), context.Canceled) })
	}
	for i := range expired { // an order that comes too early is refused, and sent again
		suite.Until(t, "a unit that came back is sold", func() bool {
			_, err := s.Reserve(t.Context(), order(fmt.Sprintf("late-%d", i), "sale", 1))
			if !errors.Is(err, inventory.ErrSoldOut) {
				require.NoError(t, err)
			}
			return err == nil
		})
	}
	gets(t, s.Store, order("more than had expired", "sale", 1), isSoldOut)
	stop()
	sweepers.Wait()
	s.wantsBooks(t, "sale", 0, holds-expired, sold+expired)
	s.balanced(t)
}

// aPoisonedOrderFailsAloneBesideLimits has the host's own trigger refuse one buyer, in batches of
// every kind.
func aPoisonedOrderFailsAloneBesideLimits(t *testing.T, s *env) {
	s.keepsBooks(t)
	s.stock(t, "sale", 1000)
	s.stock(t, "other", 1000)
	s.poison(t)
	var ops []op
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
		ops = append(ops, d)
	}
	s.doAtOnce(t, []*inventory.Store{s.Store}, ops, func(d op, r reply) {
		if banned := d.Request.Buyer == "banned"; !banned && r.Kind != "" ||
			banned && (!strings.Contains(r.Kind, inventory.ErrRejected.Error()) || !strings.Contains(r.Kind, "banned")) {
			t.Errorf("%s, of %s: %+v", d.Request.Key, d.Request.Buyer, r)
		}
	})
	b := s.balance(t, "sale")
	assert.EqualValues(t, 236, b.Sold+b.Held)
	assert.Zero(t, s.Count(t, "SELECT count(*) FROM dblock_quota WHERE buyer = 'banned' AND used > 0"))
	s.balanced(t)
}
