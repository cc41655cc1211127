package mysqlinventory_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/mysqlinventory"
)

// TestAWaitThatWasLeftCountsInThePool has the caller of a statement that waits for a row leave. The
// server goes on waiting, so the pool must not open another connection in the place of that one.
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

// TestAHookThatHidesWhatFailed: a hook returns nil, and has rows open, or a statement has failed.
// Nothing is sold then. A hook that closes its rows is sold.
func TestAHookThatHidesWhatFailed(t *testing.T) {
	t.Parallel()
	const twice = "INSERT INTO dblock_stock (sku, bucket, available) VALUES (x'7a', 0, 1), (x'7a', 0, 1)"
	hooks := map[string]func(ctx context.Context, tx mysqlinventory.HookTx){
		"closes its rows": func(ctx context.Context, tx mysqlinventory.HookTx) {
			if rows, err := tx.QueryContext(ctx, "SELECT 1 UNION ALL SELECT 2"); err == nil {
				_ = rows.Close()
			}
		},
		"leaves rows open": func(ctx context.Context, tx mysqlinventory.HookTx) {
			if rows, err := tx.QueryContext(ctx, "SELECT 1 UNION ALL SELECT 2"); err == nil {
				rows.Next()
			}
		},
		"leaves a row open": func(ctx context.Context, tx mysqlinventory.HookTx) { tx.QueryRowContext(ctx, "SELECT 1") },
		"fails":             func(ctx context.Context, tx mysqlinventory.HookTx) { _, _ = tx.ExecContext(ctx, twice) },
		"fails to query": func(ctx context.Context, tx mysqlinventory.HookTx) {
			_, _ = tx.QueryContext(ctx, "SELECT 1 FROM missing")
		},
		"fails for a row": func(ctx context.Context, tx mysqlinventory.HookTx) { tx.QueryRowContext(ctx, "SELECT 1 FROM missing") },
		"fails to prepare": func(ctx context.Context, tx mysqlinventory.HookTx) {
			_, _ = tx.PrepareContext(ctx, "SELECT 1 FROM missing")
		},
		"fails in its rows": func(ctx context.Context, tx mysqlinventory.HookTx) {
			if rows, err := tx.QueryContext(ctx, "SELECT IF(n = 2, (SELECT 1 UNION SELECT 2), n) FROM (SELECT 1 AS n UNION ALL SELECT 2) s"); err == nil {
				for rows.Next() {
				}
			}
		},
	}
	for _, kind := range family() {
		for name, hook := range hooks {
			t.Run(string(kind)+"/"+name, func(t *testing.T) {
				t.Parallel()
				_, db := shop(t, kind)
				store, err := mysqlinventory.New(t.Context(), db, inventory.Options{}, mysqlinventory.WithHook(
					func(ctx context.Context, tx mysqlinventory.HookTx, _ []inventory.Reservation) error {
						hook(ctx, tx)
						return nil
					}))
				if err != nil {
					t.Fatal(err)
				}
				want := 0
				if name == "closes its rows" {
					want = 1
				}
				_, err = store.Reserve(t.Context(), inventory.Request{Key: "order", SKU: "sku", Qty: 1})
				if (err == nil) != (want == 1) || err != nil && !errors.Is(err, inventory.ErrRejected) {
					t.Errorf("Reserve: %v", err)
				}
				var sold int
				if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM dblock_reservation").Scan(&sold); err != nil || sold != want {
					t.Errorf("%d orders, want %d: %v", sold, want, err)
				}
			})
		}
	}
}
