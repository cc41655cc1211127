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
	"github.com/dblock-go/dblock/inventory"
)

// RunWith sells over connections with other settings, which are appended to the DSN's query. Each
// gives the same answers.
func (e Inventory) RunWith(t *testing.T, settings map[string]string) {
	for name, setting := range settings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := e.env(t, inventory.Options{})
			s.DSN = suite.AppendQuery(s.DSN, setting)
			for way, o := range ways {
				t.Run(way, func(t *testing.T) {
					s.o = small(o)
					s.o.MaxInFlight = min(s.o.MaxInFlight, 4) // each opens a connection, which takes longer than an order
					s.Store = s.open(t, s.o)
					s.sellsAsUsual(t, way)
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
	got := outcomes(inEach(t.Context(), reqs, s.Store, s.open(t, s.o)))
	n := got["replayed"]
	assert.Equal(t, map[string]int{"sold": 12, "replayed": n, isSoldOut: 28 - n, isUnknownSKU: 8}, got)
	recorded := 0
	for _, r := range reqs {
		if res, err := s.Lookup(t.Context(), r.Key); err == nil && res.State == inventory.ReservationSold {
			recorded++
		}
	}
	assert.Equal(t, 12, recorded)
	s.wantsBooks(t, sku, 0, 0, 12)
	s.sound(t)
}

// OperatorsOfStockNeedTheirGrants audits, and looks up an order.
func (ownTests) OperatorsOfStockNeedTheirGrants(t *testing.T, e Inventory) {
	s := e.env(t, inventory.Options{})
	s.stock(t, "lamp", 5)
	s.sells(t, order("order", "lamp", 1))
	s.OperatorNeedsEachGrant(t, suite.OfStock, func(dsn string) func() error {
		s.DSN = dsn
		operator := s.open(t, inventory.Options{})
		return func() error {
			return errors.Join(suite.Second(operator.Audit(t.Context())), suite.Second(operator.Lookup(t.Context(), "order")))
		}
	})
}

// RunReadOnly sells while the server becomes read-only and back. All calls end with true answers.
func (e Inventory) RunReadOnly(t *testing.T) {
	server := suite.NewReadOnlyServer(t, e.Kind)
	if server == nil {
		return
	}
	for way, o := range ways {
		e.envOn(t, server.DB, o).sellsReadOnly(t, server, "sku-"+way)
	}
}

func (s *env) sellsReadOnly(t *testing.T, server *suite.ReadOnlyServer, sku string) {
	t.Helper()
	const sellers, stock = 50, 1_000_000
	s.stock(t, sku, stock)
	var phase atomic.Int32
	var last [sellers]atomic.Int32 // the phase in which the last call began, and 100 if it was refused
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
				_, err := s.Reserve(t.Context(), order(key, sku, 1))
				if err != nil {
					suite.SaysReadOnly(t, key, err)
					began += 100
					time.Sleep(time.Millisecond) // its buyer reads the error
				}
				mu.Lock()
				sold[key] = err == nil
				mu.Unlock()
				last[seller].Store(began)
			}
		})
	}
	for i, want := range []int32{1, 102, 3} {
		server.Become(t, i == 1)
		phase.Store(int32(i + 1))
		for n := range last {
			suite.Until(t, fmt.Sprint(n, " is answered"), func() bool { return last[n].Load() == want })
		}
	}
	stop()
	all.Wait()
	recorded := s.Texts(t, "SELECT reservation_key FROM dblock_reservation WHERE sku = '"+sku+"'")
	for _, key := range recorded {
		assert.True(t, sold[key], "order %q is recorded, and was refused", key)
		delete(sold, key)
	}
	for key := range sold {
		assert.False(t, sold[key], "order %q was sold, and is not recorded", key)
	}
	n := int64(len(recorded))
	s.wantsBooks(t, sku, stock-n, 0, n)
}
