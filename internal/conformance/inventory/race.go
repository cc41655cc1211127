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
	results := map[inventory.State]int64{}
	for round := range races / 20 {
		reqs := ordersOf(fmt.Sprint("round ", round), 20, "sale")
		for i := range reqs {
			reqs[i].Hold = time.Millisecond << random.IntN(11) // about as long as a call takes, on any machine
		}
		suite.Crowd(len(reqs), func(i int) {
			s.sells(t, reqs[i])
			state := s.race(t, other, reqs[i].Key, i%4 == 0)
			mu.Lock()
			defer mu.Unlock()
			results[state]++
		})
	}
	s.sweepAll(t)
	sold := results[inventory.Sold]
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

// race confirms an order while another Store cancels it, or sweeps. It returns the final state.
func (s *env) race(t *testing.T, other *inventory.Store, key string, cancel bool) inventory.State {
	confirm := suite.Begin(func() (inventory.Reservation, error) { return s.Confirm(t.Context(), key) })
	var ended error
	if cancel {
		_, ended = other.Cancel(t.Context(), key)
	} else {
		_, ended = other.Sweep(t.Context(), 100)
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
	assert.Equal(t, want, [2]string{kindOf(confirmed), kindOf(ended)}, "%s is %v", key, got.State)
	return got.State
}

// oneOfManyConfirmsAndCancels sends four of both for each key at once, from two Stores.
func oneOfManyConfirmsAndCancels(t *testing.T, s *env) {
	s.keepsBooks(t)
	s.stock(t, "sale", 30)
	var ops []op
	for i, key := range named("order", 30) {
		s.sells(t, held(key, "sale"))
		for n := range 8 {
			ops = append(ops, onKey([]string{toConfirm, toCancel}[(n/2+i)%2], key))
		}
	}
	got := map[string]map[string]int{}
	s.doAtOnce(t, []*inventory.Store{s.Store, s.open(t, s.o)}, ops, func(d op, r reply) {
		if got[d.Request.Key] == nil {
			got[d.Request.Key] = map[string]int{}
		}
		got[d.Request.Key][fmt.Sprintf("%s: %v, %q, replayed: %v", d.What, r.State, r.Kind, r.Replayed)]++
	})
	right := []map[string]int{{
		`confirm: sold, "", replayed: false`: 1, `confirm: sold, "", replayed: true`: 3,
		`cancel: State(0), "already confirmed", replayed: false`: 4,
	}, {
		`cancel: cancelled, "", replayed: false`: 1, `cancel: cancelled, "", replayed: true`: 3,
		`confirm: State(0), "cancelled", replayed: false`: 4,
	}}
	for key := range got {
		assert.Contains(t, right, got[key], key)
	}
	s.balanced(t)
}

// cancelRacesItsOrder sends orders and their cancellations at once. None stays sold.
func cancelRacesItsOrder(t *testing.T, s *env) {
	s.keepsBooks(t)
	s.stock(t, "sale", races)
	var ops []op
	for i, key := range named("order", races) {
		r := held(key, "sale")
		r.Limit = int64(i % 3)
		ops = append(ops, op{What: toReserve, Request: r}, onKey(toCancel, key))
	}
	rand.Shuffle(len(ops), func(i, j int) { ops[i], ops[j] = ops[j], ops[i] })
	s.doAtOnce(t, []*inventory.Store{s.Store, s.open(t, s.o)}, ops, func(d op, r reply) {
		cancelled := d.What == toCancel && r.Kind == "" && r.State == inventory.Cancelled
		assert.True(t, cancelled || d.What == toReserve && (r.Kind == "" || r.Kind == isCancelled), "%+v: %+v", d, r)
	})
	s.wantsBooks(t, "sale", races, 0, 0)
	s.balanced(t)
}

// theLastUnitIsSold has orders for exactly the stock. A quarter is cancelled for other orders.
func theLastUnitIsSold(t *testing.T, s *env) {
	s.keepsBooks(t)
	stores := []*inventory.Store{s.Store, s.open(t, s.o)}
	random := rand.New(rand.NewPCG(13, 0))
	units, reqs := int64(0), ordersFor(300, "sale")
	for i := range reqs {
		r := &reqs[i]
		r.Qty, r.Hold = 1+random.Int64N(5), time.Duration(i%2)*time.Hour
		if i%3 == 0 {
			r.Limit = r.Qty
		}
		units += r.Qty
	}
	s.stock(t, "sale", units)
	suite.Crowd(len(reqs), func(i int) {
		r, store := reqs[i], stores[i%2]
		_, err := store.Reserve(t.Context(), r)
		switch i % 4 {
		case 1:
			err = errors.Join(err, suite.Second(store.Confirm(t.Context(), r.Key)))
		case 3:
			err = errors.Join(err, suite.Second(store.Cancel(t.Context(), r.Key)))
			r.Key, r.Hold = r.Key+" again", 0
			err = errors.Join(err, suite.Second(store.Reserve(t.Context(), r)))
		}
		assert.NoError(t, err, r.Key)
	})
	s.wantsBooks(t, "sale", 0, 0, units)
	s.balanced(t)
}

// sweepersGiveBackWhatExpired runs sweepers in two Stores, beside orders for what comes back.
func sweepersGiveBackWhatExpired(t *testing.T, s *env) {
	const sold, holds, expired = 60, 80, 60
	s.keepsBooks(t)
	s.stock(t, "sale", sold+holds)
	sellsTo(t, s.Store, ordersFor(sold, "sale"))
	reqs := ordersOf("held", holds, "sale")
	for i := range reqs {
		reqs[i].Hold, reqs[i].Limit = time.Hour, 1
	}
	sellsTo(t, s.Store, reqs)
	s.isDue(t, named("held", expired)...)
	ctx, stop := context.WithCancel(t.Context())
	var sweepers sync.WaitGroup
	for _, store := range []*inventory.Store{s.Store, s.open(t, s.o)} {
		sweepers.Go(func() { assert.ErrorIs(t, store.RunSweeper(ctx, 10*time.Millisecond), context.Canceled) })
	}
	for _, r := range ordersOf("late", expired, "sale") { // an order that comes too early is sent again
		suite.Until(t, "a unit that came back is sold", func() bool {
			_, err := s.Reserve(t.Context(), r)
			require.Contains(t, []string{"", isSoldOut}, kindOf(err))
			return err == nil
		})
	}
	gets(t, s.Store, order("more than had expired", "sale", 1), isSoldOut)
	stop()
	sweepers.Wait()
	s.wantsBooks(t, "sale", 0, holds-expired, sold+expired)
	s.balanced(t)
}

// aPoisonedOrderFailsAloneBesideLimits has the host's trigger refuse one buyer, in batches of any
// kind.
func aPoisonedOrderFailsAloneBesideLimits(t *testing.T, s *env) {
	s.keepsBooks(t)
	s.stock(t, "sale", 1000)
	s.stock(t, "other", 1000)
	s.poison(t)
	var ops []op
	for i, r := range ordersFor(240, "sale") {
		r.Buyer, r.Limit, r.Hold = fmt.Sprint("buyer ", i%60), int64(i%2)*100, time.Duration(i%3)*time.Hour
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
		rejected := strings.Contains(r.Kind, inventory.ErrRejected.Error()) && strings.Contains(r.Kind, "banned")
		if d.Request.Buyer != "banned" {
			assert.Empty(t, r.Kind, d.Request.Key)
		} else {
			assert.True(t, rejected, "%s: %+v", d.Request.Key, r)
		}
	})
	b := s.balance(t, "sale")
	assert.EqualValues(t, 236, b.Sold+b.Held)
	assert.Zero(t, s.Count(t, "SELECT count(*) FROM dblock_quota WHERE buyer = 'banned' AND used > 0"))
	s.balanced(t)
}
