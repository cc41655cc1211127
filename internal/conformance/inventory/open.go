package inventory

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/inventory"
)

// keysOpenElsewhereStallNobody has a transaction that stays open record orders of another SKU under some keys. Orders under the same keys
// for a hot SKU wait. All others for the hot SKU are sold meanwhile, however often the open keys are sent again.
func keysOpenElsewhereStallNobody(open int) func(t *testing.T, s *env) {
	return func(t *testing.T, s *env) {
		const rounds, perRound = 8, 40
		s.stock(t, "hot", int64(rounds*(perRound+1)+open))
		keys := named("open", open)
		statements := make([]string, open)
		for i, key := range keys {
			statements[i] = "INSERT INTO dblock_reservation (reservation_key, sku, buyer, qty, state) VALUES ('" + key + "', 'cold', '', 1, 2)"
		}
		letGo := s.lockRows(t, statements...)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		var all sync.WaitGroup
		waited := make(chan told, open*rounds)
		for round := range rounds {
			for _, key := range keys {
				all.Go(func() {
					r := order(key, "hot", 1)
					res, err := s.Reserve(t.Context(), r)
					waited <- told{r, res, err}
				})
			}
			for _, a := range crowd(ctx, s.Store, ordersOf(fmt.Sprint("round ", round), perRound, "hot")) {
				if a.err != nil {
					t.Fatalf("%s, beside %d keys that are open elsewhere: %v", a.req.Key, open, a.err)
				}
			}
			if _, err := s.Reserve(ctx, order(fmt.Sprint("alone ", round), "hot", 1)); err != nil {
				t.Fatalf("an order that comes alone, beside %d keys that are open elsewhere: %v", open, err)
			}
		}
		if n := len(waited); n > 0 {
			t.Errorf("%d orders did not wait for their keys", n)
		}
		letGo()
		all.Wait()
		close(waited)
		sold := make(map[string]int)
		for a := range waited {
			if a.err != nil || a.res.State != inventory.Sold {
				t.Errorf("%s, which waited: %+v, %v", a.req.Key, a.res, a.err)
			}
			if !a.res.Replayed {
				sold[a.req.Key]++
			}
		}
		for _, key := range keys {
			if sold[key] != 1 {
				t.Errorf("%s was sold %d times", key, sold[key])
			}
		}
		s.wantsBooks(t, "hot", 0, 0, int64(rounds*(perRound+1)+open))
		s.sound(t)
	}
}

// keysOpenElsewhereLockNoStock has crowds come to a Store with a hook, which decides with the stock
// locked. Many of the orders have keys that another transaction writes. The client's side counts
// the statements that lock stock: as many as there are orders at most, since each order meets its
// open key once with the stock locked. A search of the open keys under that lock would take about
// twice as many.
func keysOpenElsewhereLockNoStock(t *testing.T, s *env) {
	const open, free, rounds = 50, 20, 3
	dialer := &faultconn.Dialer{Watch: "Stock :many"} // of LockStock and LockFreeStock, by the names in their comments
	store := s.hookedOn(t, s.unprepared(t), dialer, s.o, ownRows)
	s.stock(t, "hot", rounds*(open+free))
	var statements []string
	for _, key := range named("open", rounds*open) {
		statements = append(statements, "INSERT INTO dblock_reservation (reservation_key, sku, buyer, qty, state) VALUES ('"+key+"', 'cold', '', 1, 2)")
	}
	letGo := s.lockRows(t, statements...)
	var all sync.WaitGroup
	for round := range rounds {
		before := dialer.Watched()
		for _, key := range named("open", rounds*open)[round*open:][:open] {
			all.Go(func() {
				if res, err := store.Reserve(t.Context(), order(key, "hot", 1)); err != nil || res.Replayed {
					t.Errorf("%s, which waited: %+v, %v", key, res, err)
				}
			})
		}
		for _, a := range crowd(t.Context(), store, ordersOf(fmt.Sprint("round ", round), free, "hot")) {
			if a.err != nil {
				t.Errorf("%s: %v", a.req.Key, a.err)
			}
		}
		n := dialer.Watched() - before
		t.Logf("%d statements locked stock for %d orders", n, open+free)
		if n == 0 || n > open+free {
			t.Errorf("%d statements locked stock for %d orders, of which %d had open keys", n, open+free, open)
		}
	}
	letGo()
	all.Wait()
	s.wantsBooks(t, "hot", 0, 0, rounds*(open+free))
	s.wantsOwnRows(t)
}

// unprepared is the env's DSN for a driver that sends each statement with its text.
func (s *env) unprepared(t *testing.T) string {
	t.Helper()
	if s.e.Kind != devdb.Postgres {
		return s.dsn
	}
	u, err := url.Parse(s.dsn)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("default_query_exec_mode", "exec")
	u.RawQuery = query.Encode()
	return u.String()
}
