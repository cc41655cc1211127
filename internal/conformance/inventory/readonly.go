package inventory

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/inventory"
)

// RunReadOnly sells while the server becomes read-only and back. The switch and all calls end, and what they say is true.
func (e Inventory) RunReadOnly(t *testing.T) {
	s := suite.NewReadOnlyServer(t, e.Kind)
	if s == nil {
		return
	}
	for _, strategy := range []inventory.Strategy{inventory.Merge, inventory.Direct, inventory.ForUpdate} {
		store, done, err := e.Open(t.Context(), s.DSN, inventory.Options{Strategy: strategy})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(done)
		sellReadOnly(t, s, store, "sku-"+strategy.String())
	}
}

// sellReadOnly has callers sell while the server becomes read-only and back.
func sellReadOnly(t *testing.T, s *suite.ReadOnlyServer, store *inventory.Store, sku string) {
	t.Helper()
	const sellers, stock = 50, 1_000_000
	if _, err := store.Restock(t.Context(), inventory.Adjustment{ID: sku, SKU: sku, Delta: stock}); err != nil {
		t.Fatal(err)
	}
	var phase atomic.Int32
	var said [sellers]atomic.Int32 // the phase and the answer of the last call
	sold, refused := sync.Map{}, sync.Map{}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	for seller := range sellers {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				began, key := phase.Load(), fmt.Sprintf("%s/%d/%d", sku, seller, n)
				_, err := store.Reserve(t.Context(), inventory.Request{Key: key, SKU: sku, Buyer: "b", Qty: 1})
				if err != nil {
					suite.SaysReadOnly(t, key, err)
					refused.Store(key, true)
					said[seller].Store(10*began + 1)
					time.Sleep(time.Millisecond) // its buyer reads the error
					continue
				}
				sold.Store(key, true)
				said[seller].Store(10 * began)
			}
		})
	}
	each := func(what string, want int32) {
		t.Helper()
		suite.Until(t, what, func() bool {
			for i := range said {
				if said[i].Load() != want {
					return false
				}
			}
			return true
		})
	}
	phase.Store(1)
	each("each seller sells", 10)
	s.Become(t, true)
	phase.Store(2)
	each("each seller reads that the server is read-only", 21)
	s.Become(t, false)
	phase.Store(3)
	each("each seller sells again", 30)
	stop()
	all.Wait()
	checkReadOnlySale(t, s, sku, stock, &sold, &refused)
}

// checkReadOnlySale compares what sellers were told with the server's tables.
func checkReadOnlySale(t *testing.T, s *suite.ReadOnlyServer, sku string, stock int64, sold, refused *sync.Map) {
	t.Helper()
	rows, err := s.DB.QueryContext(t.Context(), "SELECT reservation_key FROM dblock_reservation WHERE sku = ?", []byte(sku))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	recorded := int64(0)
	for rows.Next() {
		var key string
		if err := rows.Scan(&key); err != nil {
			t.Fatal(err)
		}
		recorded++
		if _, ok := refused.Load(key); ok {
			t.Errorf("order %q is recorded, and its seller was told that nothing was written", key)
		}
		sold.Delete(key)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	sold.Range(func(key, _ any) bool {
		t.Errorf("order %q was sold and is not recorded", key)
		return true
	})
	var left int64
	if err := s.DB.QueryRowContext(t.Context(), "SELECT SUM(available) FROM dblock_stock WHERE sku = ?", []byte(sku)).Scan(&left); err != nil {
		t.Fatal(err)
	}
	if left+recorded != stock {
		t.Errorf("%d units are left and %d are sold, of %d", left, recorded, stock)
	}
}
