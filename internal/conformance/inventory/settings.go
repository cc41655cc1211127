package inventory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/inventory"
)

// RunWith sells over connections with other settings, which are appended to the DSN's query. Each
// gives the same answers.
func (e Inventory) RunWith(t *testing.T, settings map[string]string) {
	for name, setting := range settings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := e.env(t, inventory.Options{})
			s.dsn = suite.AppendQuery(s.dsn, setting)
			for _, strategy := range e.strategies() {
				t.Run(strategy.String(), func(t *testing.T) {
					s.o = small(strategy)
					s.o.MaxInFlight = min(s.o.MaxInFlight, 4) // each opens a connection, which takes longer than an order
					s.Store = s.open(t, s.o)
					s.sellsAsUsual(t, strategy.String())
				})
			}
		})
	}
}

// sellsAsUsual sells 12 units to 40 buyers, from two Stores at once.
func (s *env) sellsAsUsual(t *testing.T, sku string) {
	s.stock(t, sku, 12)
	s.wants(t, restocks(inventory.Adjustment{ID: "stock of " + sku, SKU: sku, Delta: 12}), reply{Replayed: true})
	reqs := append(ordersOf(sku, 20, sku), ordersOf(sku+" unknown", 4, "nonsense")...)
	all := inEach(t.Context(), reqs, s.Store, s.open(t, s.o))
	sold := ""
	for _, a := range all {
		if a.err == nil {
			sold = a.req.Key
		}
	}
	got := outcomes(all)
	n := got["replayed"]
	assert.Equal(t, map[string]int{"sold": 12, "replayed": n, isSoldOut: 28 - n, isUnknownSKU: 8}, got)
	assert.Equal(t, inventory.Sold, suite.Must(s.Lookup(t.Context(), sold))(t).State)
	s.wantsBooks(t, sku, 0, 0, 12)
	s.sound(t)
}

// operatorsOfStockNeedTheirGrants audits, and looks up an order.
func operatorsOfStockNeedTheirGrants(t *testing.T, e Inventory) {
	s := e.env(t, inventory.Options{})
	s.stock(t, "lamp", 5)
	s.sells(t, order("order", "lamp", 1))
	s.OperatorNeedsEachGrant(t, suite.OfStock, func(dsn string) func() error {
		s.dsn = dsn
		operator := s.open(t, inventory.Options{})
		return func() error {
			return errors.Join(suite.Second(operator.Audit(t.Context())), suite.Second(operator.Lookup(t.Context(), "order")))
		}
	})
}

// RunReadOnly sells while the server becomes read-only and back. The switch and all calls end, and
// what they say is true.
func (e Inventory) RunReadOnly(t *testing.T) {
	s := suite.NewReadOnlyServer(t, e.Kind)
	if s == nil {
		return
	}
	for _, strategy := range []inventory.Strategy{inventory.Merge, inventory.Direct, inventory.ForUpdate} {
		store, done, err := e.Open(t.Context(), s.DSN, inventory.Options{Strategy: strategy})
		if assert.NoError(t, err) {
			t.Cleanup(done)
			sellReadOnly(t, s, store, "sku-"+strategy.String())
		}
	}
}

func sellReadOnly(t *testing.T, s *suite.ReadOnlyServer, store *inventory.Store, sku string) {
	t.Helper()
	const sellers, stock = 50, 1_000_000
	assert.NoError(t, restock(t, store, sku, sku, stock))
	var phase atomic.Int32
	var said [sellers]atomic.Int32 // the phase in which the last call began, and 100 if it was refused
	var mu sync.Mutex
	sold := map[string]bool{} // by key; false: refused
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	for seller := range sellers {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				began, key := phase.Load(), fmt.Sprintf("%s/%d/%d", sku, seller, n)
				_, err := store.Reserve(t.Context(), order(key, sku, 1))
				if err != nil {
					suite.SaysReadOnly(t, key, err)
					began += 100
					time.Sleep(time.Millisecond) // its buyer reads the error
				}
				said[seller].Store(began)
				mu.Lock()
				sold[key] = err == nil
				mu.Unlock()
			}
		})
	}
	for i, each := range []struct {
		readOnly bool
		want     int32
	}{{false, 1}, {true, 102}, {false, 3}} {
		if i > 0 {
			s.Become(t, each.readOnly)
		}
		phase.Store(int32(i + 1))
		suite.Until(t, fmt.Sprintf("each seller reads that the server is read-only: %v", each.readOnly), func() bool {
			for n := range said {
				if said[n].Load() != each.want {
					return false
				}
			}
			return true
		})
	}
	stop()
	all.Wait()
	db := &suite.DB{DB: s.DB, Kind: devdb.MySQL}
	recorded := db.Texts(t, "SELECT reservation_key FROM dblock_reservation WHERE sku = ?", []byte(sku))
	for _, key := range recorded {
		assert.True(t, sold[key], "order %q is recorded, and was refused", key)
		delete(sold, key)
	}
	for key := range sold {
		assert.False(t, sold[key], "order %q was sold, and is not recorded", key)
	}
	left := db.Count(t, "SELECT CAST(SUM(available) AS SIGNED) FROM dblock_stock WHERE sku = ?", []byte(sku))
	assert.EqualValues(t, stock, left+int64(len(recorded)))
}
