package pginventory_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/pginventory"
)

// TestALockedLimitStopsNoOtherCart: another transaction has the limit of one buyer locked, whose
// carts wait. Carts of other SKUs without a limit are sold meanwhile.
func TestALockedLimitStopsNoOtherCart(t *testing.T) {
	t.Parallel()
	pool := testdb.MigratedPostgres(t)
	store, err := pginventory.New(t.Context(), pool, inventory.Options{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for _, sku := range []string{"k", "o", "x", "y"} {
		if _, err := store.Restock(t.Context(), inventory.Adjustment{ID: sku, SKU: sku, Delta: 10_000}); err != nil {
			t.Fatal(err)
		}
	}
	limited := inventory.Request{Key: "first", SKU: "k", Qty: 1, Buyer: "b", Limit: 1000}
	if _, err := store.Reserve(t.Context(), limited); err != nil {
		t.Fatal(err)
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), "UPDATE dblock_quota SET most = most"); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var waiting, others sync.WaitGroup
	for caller := range 10 {
		waiting.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				_, _ = store.ReserveAll(ctx, inventory.Cart{Key: fmt.Sprint("waits ", caller, " ", n), Buyer: "b", Lines: []inventory.Line{
					{SKU: "k", Qty: 1, Limit: 1000}, {SKU: "o", Qty: 1},
				}})
			}
		})
	}
	for caller := range 3 {
		others.Go(func() {
			for n := range 150 {
				cart := inventory.Cart{Key: fmt.Sprint("free ", caller, " ", n), Lines: []inventory.Line{{SKU: "x", Qty: 1}, {SKU: "y", Qty: 1}}}
				if _, err := store.ReserveAll(t.Context(), cart); err != nil {
					t.Error(err)
				}
				time.Sleep(10 * time.Millisecond) // they come for a few times the timeout
			}
		})
	}
	others.Wait()
	stop()
	waiting.Wait()
}
