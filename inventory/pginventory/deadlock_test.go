package pginventory_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/pginventory"
)

// A deadlock is retried, so only its cost would show it: the server's own count reports whether
// rows are locked in one order.

func TestBatchesOfManySKUsNeverDeadlock(t *testing.T) {
	t.Parallel()
	const processes, skus, buyers, each = 4, 12, 48, 10
	pool, stores := openProcesses(t, make([][]pginventory.Option, processes)...)
	for sku := range skus {
		name := fmt.Sprint("sku-", sku)
		if _, err := stores[0].Restock(t.Context(), inventory.Adjustment{ID: name, SKU: name, Delta: 1e6}); err != nil {
			t.Fatal(err)
		}
	}
	var crowd sync.WaitGroup
	for p, store := range stores {
		for b := range buyers {
			crowd.Go(func() { // one order after another, so that batches of several SKUs keep forming
				for i := range each {
					r := inventory.Request{Key: fmt.Sprintf("%d-%d-%d", p, b, i), SKU: fmt.Sprint("sku-", (b+i*(1+p))%skus), Qty: 1}
					if _, err := store.Reserve(t.Context(), r); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	crowd.Wait()
	if n := deadlocks(t, pool.Config().ConnString(), pool.Reset); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
}

// TestTheSameOrdersFromTwoProcessesNeverDeadlock: a batch that goes the short way writes its orders
// and then takes the stock, one that is decided under the lock goes the other way round. They lock
// in opposite orders if a buyer sends an order twice at once.
func TestTheSameOrdersFromTwoProcessesNeverDeadlock(t *testing.T) {
	t.Parallel()
	const processes, buyers, each = 3, 32, 15
	pool, stores := openProcesses(t, make([][]pginventory.Option, processes)...)
	if _, err := stores[0].Restock(t.Context(), inventory.Adjustment{ID: "1", SKU: "sku", Delta: 1e6}); err != nil {
		t.Fatal(err)
	}
	var crowd sync.WaitGroup
	for b := range buyers {
		crowd.Go(func() {
			for i := range each {
				var twice sync.WaitGroup
				for _, store := range stores {
					twice.Go(func() {
						r := inventory.Request{Key: fmt.Sprintf("%d-%d", b, i), SKU: "sku", Qty: 1}
						if _, err := store.Reserve(t.Context(), r); err != nil {
							t.Error(err)
						}
					})
				}
				twice.Wait()
			}
		})
	}
	crowd.Wait()
	if n := deadlocks(t, pool.Config().ConnString(), pool.Reset); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
}

// openProcesses opens a Store on one database for each of several processes.
func openProcesses(t *testing.T, options ...[]pginventory.Option) (pool *pgxpool.Pool, stores []*inventory.Store) {
	t.Helper()
	pool = testdb.MigratedPostgres(t)
	for _, o := range options {
		store, err := pginventory.New(t.Context(), pool, inventory.Options{Timeout: time.Minute}, o...)
		if err != nil {
			t.Fatal(err)
		}
		stores = append(stores, store)
	}
	return pool, stores
}

// TestControlDeadlocks locks two rows in opposite orders: the count sees it.
func TestControlDeadlocks(t *testing.T) {
	t.Parallel()
	pool := testdb.Postgres(t)
	ctx := t.Context()
	if _, err := pool.Exec(ctx, "CREATE TABLE t AS SELECT i FROM generate_series(1, 2) i"); err != nil {
		t.Fatal(err)
	}
	var locked, done sync.WaitGroup
	locked.Add(2)
	for me := range 2 {
		done.Go(func() {
			tx, err := pool.Begin(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = tx.Rollback(ctx) }()
			_, err = tx.Exec(ctx, "SELECT 1 FROM t WHERE i = $1 FOR UPDATE", 1+me)
			if err != nil {
				t.Error(err)
			}
			locked.Done()
			locked.Wait()
			_, _ = tx.Exec(ctx, "SELECT 1 FROM t WHERE i = $1 FOR UPDATE", 2-me) // one of the two fails
		})
	}
	done.Wait()
	if n := deadlocks(t, pool.Config().ConnString(), pool.Reset); n != 1 {
		t.Errorf("%d deadlocks, want 1", n)
	}
}

// deadlocks returns the server's count for the database. A session reports its own when it ends,
// so endSessions ends them, and this waits until they are gone.
func deadlocks(t *testing.T, url string, endSessions func()) (n int64) {
	t.Helper()
	endSessions()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for others := 1; others > 0; {
		err := conn.QueryRow(ctx, `SELECT count(*) FROM pg_catalog.pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid()`).Scan(&others)
		if err != nil {
			t.Fatal(err)
		}
	}
	err = conn.QueryRow(ctx, "SELECT deadlocks FROM pg_catalog.pg_stat_database WHERE datname = current_database()").Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestCartsAndLimitsNeverDeadlock has carts, orders with limits, confirmations, cancellations, keys
// that are cancelled before they are sold, and sweeps meet in several processes.
func TestCartsAndLimitsNeverDeadlock(t *testing.T) {
	t.Parallel()
	const processes, skus, buyers, each = 3, 8, 24, 3
	pool, stores := openProcesses(t, make([][]pginventory.Option, processes)...)
	for sku := range skus {
		name := fmt.Sprint("sku-", sku)
		if _, err := stores[0].Restock(t.Context(), inventory.Adjustment{ID: name, SKU: name, Delta: 1e6}); err != nil {
			t.Fatal(err)
		}
	}
	var crowd sync.WaitGroup
	for p, store := range stores {
		for b := range buyers {
			crowd.Go(func() {
				for i := range each {
					if err := meet(t.Context(), store, p, b, i, skus); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	crowd.Wait()
	if n := deadlocks(t, pool.Config().ConnString(), pool.Reset); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
}

// meet is one buyer's turn: some units of each SKU, of the same few SKUs and quotas as the other
// buyers'.
func meet(ctx context.Context, store *inventory.Store, p, b, i, skus int) error {
	key, buyer := fmt.Sprintf("%d-%d-%d", b, i, p), fmt.Sprint("buyer ", (b+i)%4)
	sku := func(n int) string { return fmt.Sprint("sku-", (b+n*(i+1+p))%skus) }
	hold := time.Duration(1+(b+i)%2*1e6) * time.Millisecond // half of them are swept
	cart := inventory.Cart{Key: key + " cart", Buyer: buyer, Hold: hold}
	for n := range 3 {
		cart.Lines = append(cart.Lines, inventory.Line{SKU: sku(n), Qty: 1, Limit: 1e6})
	}
	calls := []func() error{
		func() error { _, err := store.ReserveAll(ctx, cart); return err },
		func() error {
			_, err := store.Reserve(ctx, inventory.Request{Key: key, SKU: sku(0), Buyer: buyer, Qty: 1, Limit: 1e6, Hold: hold})
			return err
		},
		func() error { _, err := store.Cancel(ctx, key+" never"); return err },
		func() error { _, err := store.Cancel(ctx, cart.Key); return err },
		func() error { _, err := store.Cancel(ctx, key); return err },
		func() error { _, err := store.Sweep(ctx, 20); return err },
	}
	calls[3], calls[i%3] = calls[i%3], calls[3] // now and then what is cancelled comes later
	for _, call := range calls {
		if err := call(); err != nil && !errors.Is(err, inventory.ErrCancelled) {
			return err
		}
	}
	return nil
}

// TestCancelsOfOrdersUnderWayNeverDeadlock has one process cancel what another one is just selling,
// beside other orders of the same buyers: a key that is cancelled before it is sold is written by
// both.
func TestCancelsOfOrdersUnderWayNeverDeadlock(t *testing.T) {
	t.Parallel()
	pool, stores := openProcesses(t, make([][]pginventory.Option, 2)...)
	if _, err := stores[0].Restock(t.Context(), inventory.Adjustment{ID: "1", SKU: "sku", Delta: 1e6}); err != nil {
		t.Fatal(err)
	}
	sell := func(key string, b int) {
		r := inventory.Request{Key: key, SKU: "sku", Buyer: fmt.Sprint("buyer ", b%4), Qty: 1, Limit: 1e6, Hold: time.Hour}
		if _, err := stores[0].Reserve(t.Context(), r); err != nil && !errors.Is(err, inventory.ErrCancelled) {
			t.Error(err)
		}
	}
	cancel := func(key string) {
		if _, err := stores[1].Cancel(t.Context(), key); err != nil {
			t.Error(err)
		}
	}
	var crowd sync.WaitGroup
	for b := range 32 {
		crowd.Go(func() {
			for i := range 12 {
				var all sync.WaitGroup
				key := fmt.Sprintf("%d-%d", b, i)
				all.Go(func() { sell(key, b) })
				all.Go(func() { cancel(key) })
				all.Go(func() { cancel(fmt.Sprintf("%d-%d beside", b, i-1)) })
				sell(key+" beside", b)
				all.Wait()
			}
		})
	}
	crowd.Wait()
	if n := deadlocks(t, pool.Config().ConnString(), pool.Reset); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
}

// TestBuyersWhoComeAgainNeverDeadlock has buyers take units under a limit in all processes at once.
// A process may or may not know a buyer. Some processes use the short way, and one with a hook the
// other: some of a batch have a quota and others get one.
func TestBuyersWhoComeAgainNeverDeadlock(t *testing.T) {
	t.Parallel()
	const callers, each, limit = 64, 20, 6
	hook := pginventory.WithHook(func(context.Context, pginventory.HookTx, []inventory.Reservation) error { return nil })
	pool, stores := openProcesses(t, nil, nil, []pginventory.Option{hook})
	if _, err := stores[0].Restock(t.Context(), inventory.Adjustment{ID: "1", SKU: "sku", Delta: 1e6}); err != nil {
		t.Fatal(err)
	}
	var numbers atomic.Int64
	var crowd sync.WaitGroup
	for p, store := range stores {
		for range callers {
			crowd.Go(func() {
				for range each {
					n := numbers.Add(1)
					buyer := n/64 - rand.Int64N(4) // a few that all know, a few that only some do
					r := inventory.Request{Key: fmt.Sprintf("%d-%d", p, n), SKU: "sku", Buyer: fmt.Sprintf("%x", uint16(buyer*40503)), Qty: 1, Limit: limit}
					if _, err := store.Reserve(t.Context(), r); err != nil && !errors.Is(err, inventory.ErrLimitExceeded) {
						t.Error(err)
					}
				}
			})
		}
	}
	crowd.Wait()
	if n := deadlocks(t, pool.Config().ConnString(), pool.Reset); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
}
