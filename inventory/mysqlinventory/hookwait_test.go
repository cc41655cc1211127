package mysqlinventory_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/mysqlinventory"
)

// TestAHookThatWaitsIsFoundAtOnce: the hook of one order of many waits for a row that another
// transaction has locked. MySQL bounds that wait in whole seconds, and the stock is locked
// meanwhile. So that order makes others wait in one transaction at most. It succeeds when the row
// is free, and no order is refused.
func TestAHookThatWaitsIsFoundAtOnce(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		if kind != devdb.MySQL {
			continue
		}
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			const plain = 30
			db := testdb.MigratedMySQL(t, kind)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			exec := func(statement string) {
				if _, err := db.ExecContext(ctx, statement); err != nil {
					t.Fatal(err)
				}
			}
			exec("CREATE TABLE counter (id INT PRIMARY KEY, n INT NOT NULL)")
			exec("INSERT INTO counter VALUES (1, 0)")
			var beside, alone atomic.Int64 // transactions in which the hook has waited, with other orders and without
			hook := func(ctx context.Context, tx mysqlinventory.HookTx, granted []inventory.Reservation) error {
				for _, r := range granted {
					if !strings.HasPrefix(r.Key, "counted") {
						continue
					}
					if _, err := tx.ExecContext(ctx, "UPDATE counter SET n = n + 1 WHERE id = 1"); err != nil {
						if len(granted) > 1 {
							beside.Add(1)
						} else {
							alone.Add(1)
						}
						return err
					}
				}
				return nil
			}
			store, err := mysqlinventory.New(ctx, db, inventory.Options{Timeout: 50 * time.Second}, mysqlinventory.WithHook(hook))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := store.Restock(ctx, inventory.Adjustment{ID: "a", SKU: "a", Delta: 1000}); err != nil {
				t.Fatal(err)
			}
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }()
			if _, err := tx.ExecContext(ctx, "UPDATE counter SET n = n + 1 WHERE id = 1"); err != nil {
				t.Fatal(err)
			}
			var counted, others sync.WaitGroup
			reserve := func(key string) {
				if _, err := store.Reserve(ctx, inventory.Request{Key: key, SKU: "a", Qty: 1}); err != nil {
					t.Errorf("order %q: %v", key, err)
				}
			}
			for i := range plain {
				others.Go(func() { reserve(fmt.Sprint(i)) })
				if i == plain/2 {
					counted.Go(func() { reserve("counted") })
				}
			}
			others.Wait()
			for alone.Load() == 0 && !t.Failed() && ctx.Err() == nil {
				reserve(fmt.Sprint("later", alone.Load(), time.Now().UnixNano()))
			}
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			counted.Wait()
			if err := store.Close(ctx); err != nil {
				t.Error(err)
			}
			if n := beside.Load(); n > 1 {
				t.Errorf("the order that waits made others wait in %d transactions", n)
			}
			var n int
			if err := db.QueryRowContext(ctx, "SELECT n FROM counter").Scan(&n); err != nil {
				t.Fatal(err)
			}
			if n != 1 {
				t.Errorf("the hook has counted %d orders", n)
			}
		})
	}
}
