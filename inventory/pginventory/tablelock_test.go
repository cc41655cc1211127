package pginventory_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/pginventory"
)

// TestCancelWaitsForALockedTable: a table is locked for longer than a row usually is, as by VACUUM
// FULL. Cancels, of held and of new keys, wait for it, and so does Confirm.
func TestCancelWaitsForALockedTable(t *testing.T) {
	t.Parallel()
	for _, table := range []string{"dblock_stock", "dblock_reservation"} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			pool := testdb.MigratedPostgres(t)
			store, err := pginventory.New(t.Context(), pool, inventory.Options{Timeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := store.Restock(t.Context(), inventory.Adjustment{ID: "a", SKU: "sale", Delta: 100}); err != nil {
				t.Fatal(err)
			}
			const each = 5
			for i := range 2 * each {
				r := inventory.Request{Key: fmt.Sprint("held ", i), SKU: "sale", Qty: 1, Hold: time.Hour}
				if _, err := store.Reserve(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
			other, err := pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer other.Release()
			exec := func(query string) {
				t.Helper()
				if _, err := other.Exec(t.Context(), query); err != nil {
					t.Fatal(err)
				}
			}
			exec("BEGIN")
			exec("LOCK TABLE " + table + " IN ACCESS EXCLUSIVE MODE")
			ended := make(chan error, 3*each)
			call := func(do func(context.Context, string) (inventory.Reservation, error), key string) {
				go func() {
					_, err := do(t.Context(), key)
					ended <- err
				}()
			}
			for i := range each {
				call(store.Cancel, fmt.Sprint("held ", i))
				call(store.Cancel, fmt.Sprint("new ", i))
				call(store.Confirm, fmt.Sprint("held ", each+i))
			}
			time.Sleep(500 * time.Millisecond) // ten times as long as a statement waits for a row
			exec("ROLLBACK")
			for range 3 * each {
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}
		})
	}
}
