package mysqlinventory_test

import (
	"context"
	"testing"
	"time"

	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/mysqlinventory"
)

// TestAWaitThatWasLeftCountsInThePool has the caller of a statement that waits for a row leave. The server goes on waiting, so the pool
// must not open another connection in the place of that one.
func TestAWaitThatWasLeftCountsInThePool(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			_, db := shop(t, kind)
			store, err := mysqlinventory.New(t.Context(), db, inventory.Options{Direct: true})
			if err != nil {
				t.Fatal(err)
			}
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.ExecContext(t.Context(), "SELECT 1 FROM dblock_stock WHERE sku = 'sku' FOR UPDATE"); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if _, err := store.Reserve(ctx, inventory.Request{Key: "left", SKU: "sku", Qty: 1}); err == nil {
				t.Error("it was sold, though another transaction has locked the row")
			}
			if n := db.Stats().InUse; n != 2 {
				t.Errorf("%d connections are in use, want that of the lock and that of the wait", n)
			}
			if err := tx.Rollback(); err != nil {
				t.Error(err)
			}
			for db.Stats().InUse > 0 && t.Context().Err() == nil {
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
}

// TestAHookMayLeaveRowsOpen: the driver takes no other statement on a connection with open rows.
func TestAHookMayLeaveRowsOpen(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			_, db := shop(t, kind)
			store, err := mysqlinventory.New(t.Context(), db, inventory.Options{}, mysqlinventory.WithHook(
				func(ctx context.Context, tx mysqlinventory.HookTx, _ []inventory.Reservation) error {
					rows, err := tx.QueryContext(ctx, "SELECT 1 UNION ALL SELECT 2")
					if err == nil && !rows.Next() {
						t.Error("no rows")
					}
					return err
				}))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := store.Reserve(t.Context(), inventory.Request{Key: "order", SKU: "sku", Qty: 1}); err != nil {
				t.Error(err)
			}
			var sold int
			if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM dblock_reservation").Scan(&sold); err != nil || sold != 1 {
				t.Errorf("%d orders, %v", sold, err)
			}
		})
	}
}
