package inventory

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/sale"
	"github.com/dblock-go/dblock/inventory"
)

// reserve sends an order as callers of the strategy do: if it does not wait for others, they send
// it again as long as it is refused as busy.
func reserve(ctx context.Context, store *inventory.Store, r inventory.Request) (inventory.Reservation, error) {
	for {
		res, err := store.Reserve(ctx, r)
		if store.Strategy().SellsAll() || !errors.Is(err, dblock.ErrBusy) || ctx.Err() != nil {
			return res, err
		}
		time.Sleep(rand.N(10 * time.Millisecond))
	}
}

// sellsAllToThoseWhoComeAgain has more buyers than units, in two Stores. Refused as busy they ask
// again, and so every unit is sold, whatever the strategy.
func sellsAllToThoseWhoComeAgain(t *testing.T, s *env) {
	units := s.size(300)
	s.stock(t, "sale", int64(units))
	stores := []*inventory.Store{s.Store, s.open(t, s.o)}
	var sold atomic.Int64
	suite.Crowd(2, func(i int) {
		sold.Add(int64(len(soldIn(t, stores[i], ordersOf(fmt.Sprint("store ", i), s.size(200), "sale")))))
	})
	assert.EqualValues(t, units, sold.Load())
	s.wantsBooks(t, "sale", 0, 0, int64(units))
	s.sound(t)
}

// neverSaysSoldOutForBusy has each buyer ask once: units may stay unsold, and none of them is
// called sold out.
func neverSaysSoldOutForBusy(t *testing.T, s *env) {
	const buyers = 400
	for _, units := range []int64{buyers, 50} {
		name := fmt.Sprintf("sale of %d", units)
		r := suite.Must(sale.Sale{Name: name, Buyers: buyers, Stock: units, Seed: 3}.Run(t.Context(), s.Store, func() {}))(t)
		assert.NoError(t, r.Check(s.o.Strategy), name)
		assert.NotZero(t, r.Sold, name)
		assert.Equal(t, r.Sold, r.Balance.Sold, name)
		assert.EqualValues(t, buyers, r.Sold+r.SoldOut+r.Busy, name)
	}
	s.sound(t)
}

// refusesAtOnceWhatIsHeld has another transaction hold the stock for as long as the test runs: the
// order is refused meanwhile, nothing is written, and sent again afterwards it is sold.
func refusesAtOnceWhatIsHeld(t *testing.T, s *env) {
	s.stock(t, "held", 64)
	s.stock(t, "none", 0)
	s.o.Timeout = 10 * time.Minute // a wait for the stock would not end
	store := s.open(t, s.o)
	release := s.hold(t, store, "held")
	s.isBusy(t, "k", suite.Second(store.Reserve(suite.Soon(t), order("k", "held", 1))))
	assert.ErrorIs(t, suite.Second(store.Reserve(t.Context(), order("other", "none", 1))), inventory.ErrSoldOut)
	release()
	res, err := reserve(t.Context(), store, order("k", "held", 1))
	assert.True(t, err == nil && !res.Replayed, "%+v, %v", res, err)
	s.sound(t)
}

// isBusy fails unless the error of a new order is ErrBusy, and nothing is recorded.
func (s *env) isBusy(t *testing.T, key string, err error) {
	t.Helper()
	assert.ErrorIs(t, err, dblock.ErrBusy)
	assert.NotErrorIs(t, err, inventory.ErrSoldOut)
	for _, says := range []string{key, "nothing was written", "sent again"} {
		assert.ErrorContains(t, err, says)
	}
	assert.ErrorIs(t, suite.Second(s.Lookup(t.Context(), key)), inventory.ErrNotFound)
}

// hold has a transaction hold all stock of an SKU, in the way that the Store's strategy excludes,
// until release is called.
func (s *env) hold(t *testing.T, store *inventory.Store, sku string) (release func()) {
	t.Helper()
	if store.Strategy() != inventory.Advisory {
		return s.lockSKUs(t, []string{sku})
	}
	// A seller has the advisory lock and waits for its key, which this transaction writes.
	letGo := s.lockRows(t, fmt.Sprintf(insertSale, "holder", sku))
	holder := suite.Begin(func() (inventory.Reservation, error) {
		return store.Reserve(t.Context(), order("holder", sku, 1))
	})
	s.Until(t, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND "+
		"database = (SELECT oid FROM pg_database WHERE datname = current_database())", 1)
	return func() {
		letGo()
		assert.NoError(t, suite.Second(holder()))
	}
}

// refusesWhatOthersChange has the row change all the time: an order is tried a few times and then
// refused, and once the row stays as it is, the same order is sold.
func refusesWhatOthersChange(t *testing.T, s *env) {
	s.stock(t, "sale", 10_000)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var others sync.WaitGroup
	for range 6 {
		others.Go(func() {
			for ctx.Err() == nil {
				_, err := s.db.ExecContext(ctx, "UPDATE dblock_stock SET epoch = epoch + 1 WHERE sku = 'sale'")
				assert.True(t, err == nil || ctx.Err() != nil, err)
			}
		})
	}
	key := ""
	for i := 0; ; i++ {
		key = fmt.Sprintf("order-%d", i)
		require.Less(t, i, 1000, "no order was refused")
		if _, err := s.Reserve(t.Context(), order(key, "sale", 1)); err != nil {
			s.isBusy(t, key, err)
			break
		}
	}
	stop()
	others.Wait()
	s.sells(t, order(key, "sale", 1))
	s.sound(t)
}

func refusesWhatTheDatabaseLacks(t *testing.T, e Inventory) {
	s := e.env(t, inventory.Options{})
	for _, strategy := range inventory.Strategies() {
		_, closePool, err := e.Open(t.Context(), s.dsn, inventory.Options{Strategy: strategy})
		if slices.Contains(e.strategies(), strategy) {
			require.NoError(t, err, strategy)
			closePool()
			continue
		}
		assert.ErrorIs(t, err, dblock.ErrUnsupported, strategy)
		assert.ErrorContains(t, err, "merge", strategy)
	}
}
