package inventory

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/sale"
	"github.com/dblock-go/dblock/inventory"
)

// sale has a crowd of buyers who order one unit each, once.
func (s *env) sale(t *testing.T, name string, units int64, buyers int, seed uint64) sale.Result {
	t.Helper()
	crowd := sale.Sale{Name: name, Buyers: buyers, Stock: units, Seed: seed}
	r := suite.Must(crowd.Run(t.Context(), s.Store, func() {}))(t)
	assert.NoError(t, r.Check(s.o.Strategy), name)
	assert.Equal(t, r.Sold, r.Balance.Sold, name)
	return r
}

func sellsExactlyItsStock(t *testing.T, s *env) {
	units := s.size(1600)
	assert.EqualValues(t, units, s.sale(t, "sale", int64(units), units, 1).Sold)
	s.sound(t)
}

func tellsTheRestSoldOut(t *testing.T, s *env) {
	units := s.size(800)
	r := s.sale(t, "sale", int64(units), 10*units, 2)
	assert.EqualValues(t, units, r.Sold)
	assert.EqualValues(t, 9*units, r.SoldOut)
	s.sound(t)
}

// controlOversells is the control: a crowd of code that reads and then writes, as CAS without its
// comparison.
func controlOversells(t *testing.T, e Inventory) {
	const buyers, units = 16, 10
	s := e.env(t, inventory.Options{})
	s.stock(t, "sale", units)
	var readers sync.WaitGroup
	readers.Add(buyers)
	suite.Crowd(buyers, func(i int) {
		var n int64
		err := s.db.QueryRowContext(t.Context(), "SELECT available FROM dblock_stock WHERE sku = 'sale'").Scan(&n)
		readers.Done()
		readers.Wait()
		assert.NoError(t, err)
		for _, statement := range []string{
			fmt.Sprintf(insertOrder+"('%d', 'sale', '', 1, 2)", i),
			fmt.Sprintf("UPDATE dblock_stock SET available = %d WHERE sku = 'sale'", n-1),
		} {
			assert.NoError(t, suite.Second(s.db.ExecContext(t.Context(), statement)))
		}
	})
	b := s.balance(t, "sale")
	assert.EqualValues(t, buyers, b.Sold)
	assert.NotZero(t, b.Drift(), "the tests of selling exactly the stock cannot fail")
}

// mayRefuse returns the units that are sold. A refusal says how many were left: fewer than the
// order wants.
func mayRefuse(t *testing.T, answers []told) (sold int64) {
	t.Helper()
	for _, a := range answers {
		if a.err == nil {
			sold += a.req.Qty
			continue
		}
		var out *inventory.SoldOutError
		if assert.ErrorAs(t, a.err, &out, a.req.Key) {
			assert.Less(t, out.Available, a.req.Qty, a.req.Key)
		}
	}
	return sold
}

func sellsEveryUnitOfMixedQuantities(t *testing.T, s *env) {
	random := rand.New(rand.NewPCG(3, 0))
	reqs := ordersOf("small", 100, "sale") // so that the last unit finds a buyer
	for i := range s.size(600) {
		reqs = append(reqs, order(fmt.Sprintf("order-%d", i), "sale", 1+random.Int64N(5)))
	}
	units := int64(s.size(1000))
	s.stock(t, "sale", units)
	assert.Equal(t, units, mayRefuse(t, crowd(t.Context(), s.Store, reqs)))
	s.wantsBooks(t, "sale", 0, 0, units)
	s.sound(t)
}

func aSoldOutSKUDoesNotStopTheRest(t *testing.T, s *env) {
	const each = 125
	var reqs []inventory.Request
	for sku, units := range map[string]int64{"plenty": 1000, "none": 0, "few": 5} {
		s.stock(t, sku, units)
		reqs = append(reqs, ordersOf(sku, each, sku)...)
	}
	reqs = append(reqs, ordersOf("unknown", each, "unknown")...)
	rand.Shuffle(len(reqs), func(i, j int) { reqs[i], reqs[j] = reqs[j], reqs[i] })
	want := map[string]int{"sold": each + 5, isSoldOut: 2*each - 5, isUnknownSKU: each}
	assert.Equal(t, want, outcomes(crowd(t.Context(), s.Store, reqs)))
	s.wantsBooks(t, "plenty", 1000-each, 0, each)
	s.wantsBooks(t, "few", 0, 0, 5)
	s.sound(t)
}

func manySKUsAtOnceNeverDeadlock(t *testing.T, s *env) {
	const skus = 20
	stores := []*inventory.Store{s.Store, s.open(t, s.o), s.open(t, s.o), s.open(t, s.o)}
	each := s.size(60)
	for _, sku := range named("sku", skus) {
		s.stock(t, sku, int64(len(stores)*each))
	}
	suite.Crowd(len(stores), func(p int) {
		var reqs []inventory.Request
		for i := range skus * each {
			reqs = append(reqs, order(fmt.Sprintf("order-%d-%d", p, i), fmt.Sprintf("sku-%d", (i*7+p)%skus), 1))
		}
		sellsTo(t, stores[p], reqs)
	})
	for _, sku := range named("sku", skus) {
		s.wantsBooks(t, sku, 0, 0, int64(len(stores)*each))
	}
	s.sound(t)
}

func aCancelledCallerGetsADefiniteEnd(t *testing.T, s *env) {
	s.stock(t, "sale", 2000)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorIs(t, suite.Second(s.Reserve(ended, order("ended", "sale", 1))), context.Canceled)
	assert.ErrorIs(t, suite.Second(s.Lookup(t.Context(), "ended")), inventory.ErrNotFound)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reqs := ordersFor(1000, "sale")
	got := make([]error, len(reqs))
	suite.Crowd(len(reqs), func(i int) {
		_, got[i] = s.Reserve(ctx, reqs[i])
		if i == 100 {
			cancel()
		}
	})
	// An order of the same key waits for what the server still does with it.
	for i, a := range crowd(t.Context(), s.Store, reqs) {
		assert.NoError(t, a.err, a.req.Key)
		if !suite.IsUnknown(got[i]) {
			assert.Equal(t, got[i] == nil, a.res.Replayed, "%s: %v", a.req.Key, got[i])
		}
	}
	s.sound(t)
}

// refusesOrdersOnceClosed closes a Store amid a sale. When Close returns, the books have each order
// that was confirmed, and no other.
func refusesOrdersOnceClosed(t *testing.T, s *env) {
	s.stock(t, "sale", 2000)
	store := s.open(t, s.o)
	answers := make(chan []told)
	go func() { answers <- crowd(t.Context(), store, ordersFor(1000, "sale")) }()
	for range 2 { // the second time there is nothing left to do
		assert.NoError(t, store.Close(t.Context()))
	}
	books, sold := s.balance(t, "sale"), int64(0)
	for _, a := range <-answers {
		if a.err == nil {
			sold++
		} else {
			assert.ErrorIs(t, a.err, dblock.ErrClosed, a.req.Key)
		}
	}
	assert.Equal(t, sold, books.Sold)
	ctx := t.Context()
	for name, err := range map[string]error{
		"Reserve":    suite.Second(store.Reserve(ctx, order("late", "sale", 1))),
		"Confirm":    suite.Second(store.Confirm(ctx, "late")),
		"Cancel":     suite.Second(store.Cancel(ctx, "late")),
		"Restock":    restock(t, store, "late", "sale", 1),
		"Sweep":      suite.Second(store.Sweep(ctx, 1)),
		"RunSweeper": store.RunSweeper(ctx, time.Second),
		"Lookup":     suite.Second(store.Lookup(ctx, "late")),
		"Audit":      suite.Second(store.Audit(ctx, "sale")),
		"Repair":     suite.Second(store.Repair(ctx, "sale")),
		"Rebalance":  store.Rebalance(ctx, "sale", 1),
	} {
		require.ErrorIs(t, err, dblock.ErrClosed, name)
	}
	s.sound(t)
}
