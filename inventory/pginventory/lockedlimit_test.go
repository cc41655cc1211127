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
	store, err := pginventory.New(t.Context(), pool, inventory.Options{Timeout: 5 * time.Second})
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
				time.Sleep(100 * time.Millisecond) // they come for a few times the timeout
			}
		})
	}
	others.Wait()
	stop()
	waiting.Wait()
}

// TestALimitThatIsBeingInsertedStopsNoOtherOrder: another transaction has inserted the limit of a
// buyer, whose carts wait. Other orders for an SKU of these carts are sold meanwhile.
func TestALimitThatIsBeingInsertedStopsNoOtherOrder(t *testing.T) {
	t.Parallel()
	const orders, most = 50, 10 * time.Second
	pool := testdb.MigratedPostgres(t)
	store, err := pginventory.New(t.Context(), pool, inventory.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for _, sku := range []string{"coupon", "hot"} {
		if _, err := store.Restock(t.Context(), inventory.Adjustment{ID: sku, SKU: sku, Delta: 10_000}); err != nil {
			t.Fatal(err)
		}
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "INSERT INTO dblock_quota (sku, buyer, used, most) VALUES ('coupon', 'b', 0, 0)"); err != nil {
		t.Fatal(err)
	}
	var waiting sync.WaitGroup
	sell := func(r inventory.Request, more ...inventory.Line) {
		var err error
		if more == nil {
			_, err = store.Reserve(t.Context(), r)
		} else {
			lines := append(more, inventory.Line{SKU: r.SKU, Qty: r.Qty, Limit: r.Limit})
			_, err = store.ReserveAll(t.Context(), inventory.Cart{Key: r.Key, Buyer: r.Buyer, Lines: lines})
		}
		if err != nil {
			t.Error(err)
		}
	}
	began := time.Now()
	for n := 0; n < orders && time.Since(began) < most; n++ {
		limited := inventory.Request{Key: fmt.Sprint("single ", n), SKU: "coupon", Qty: 1, Buyer: "b", Limit: 1000}
		waiting.Go(func() { sell(limited) })
		cart := limited
		cart.Key = fmt.Sprint("cart ", n)
		waiting.Go(func() { sell(cart, inventory.Line{SKU: "hot", Qty: 1}) })
		sell(inventory.Request{Key: fmt.Sprint("hot ", n), SKU: "hot", Qty: 1})
		sell(inventory.Request{Key: fmt.Sprint("other ", n), SKU: "coupon", Qty: 1, Buyer: fmt.Sprint(n), Limit: 1})
	}
	if took := time.Since(began); took > most {
		t.Errorf("%d orders took %v", 2*orders, took)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	waiting.Wait()
}
