package mysqlinventory_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/mysqlinventory"
)

// TestSweepPassesALockedSKU: another transaction has the stock of one SKU locked, of which 1,200
// holds have expired. The holds of another SKU, which expired later, are swept meanwhile.
func TestSweepPassesALockedSKU(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			db := testdb.MigratedMySQL(t, kind)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // one hold after the other takes 0.1 s each
			defer cancel()
			store, err := mysqlinventory.New(ctx, db, inventory.Options{})
			if err != nil {
				t.Fatal(err)
			}
			reserve := func(sku string, n int) {
				if _, err := store.Restock(ctx, inventory.Adjustment{ID: sku, SKU: sku, Delta: int64(n)}); err != nil {
					t.Fatal(err)
				}
				var all sync.WaitGroup
				for i := range n {
					all.Go(func() {
						r := inventory.Request{Key: fmt.Sprint(sku, i), SKU: sku, Qty: 1, Hold: time.Millisecond}
						if _, err := store.Reserve(ctx, r); err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
			}
			reserve("locked", 1200)
			reserve("free", 20)
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }()
			if _, err := tx.ExecContext(ctx, "UPDATE dblock_stock SET available = available WHERE sku = 'locked'"); err != nil {
				t.Fatal(err)
			}
			for swept := 0; swept < 20; {
				n, err := store.Sweep(ctx, 1000)
				if err != nil {
					t.Fatalf("after %d: %v", swept, err)
				}
				swept += n
			}
		})
	}
}
