package inventory

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/inventory"
)

// lockRows locks rows in another transaction until letGo is called.
func (s *env) lockRows(t *testing.T, statements ...string) (letGo func()) {
	t.Helper()
	tx, err := s.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range statements {
		if _, err := tx.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		t.Helper()
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	}
}

// lockSKUs is lockRows for the stock of SKUs. Each has a statement of its own: one that reads the whole table would lock all of it.
func (s *env) lockSKUs(t *testing.T, skus []string) (letGo func()) {
	t.Helper()
	statements := make([]string, len(skus))
	for i, sku := range skus {
		statements[i] = "SELECT 1 FROM dblock_stock WHERE sku = '" + sku + "' FOR UPDATE"
	}
	return s.lockRows(t, statements...)
}

func named(name string, n int) []string {
	skus := make([]string, n)
	for i := range skus {
		skus[i] = fmt.Sprintf("%s-%d", name, i)
	}
	return skus
}

// lockedSKUsLeaveTheRest has a transaction hold some SKUs for which many orders wait. All others are sold meanwhile, and those that
// waited when it ends.
func lockedSKUsLeaveTheRest(locked, waiters int) func(t *testing.T, s *env) {
	return func(t *testing.T, s *env) {
		const cold, perCold = 20, 10
		held, free := named("held", locked), named("free", cold)
		for _, sku := range held {
			s.stock(t, sku, int64(waiters))
		}
		for _, sku := range free {
			s.stock(t, sku, 2*perCold)
		}
		letGo := s.lockSKUs(t, held)
		var late []inventory.Request
		for _, sku := range held {
			late = append(late, ordersOf("late "+sku, waiters, sku)...)
		}
		waited := make(chan []told, 1)
		go func() { waited <- crowd(t.Context(), s.Store, late) }()
		s.waitsForARow(t)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var crowded []inventory.Request
		for i, sku := range free {
			for _, r := range ordersOf("alone "+sku, 1, sku) {
				if _, err := s.Reserve(ctx, r); err != nil {
					t.Fatalf("of an SKU that is free, beside %d that are locked: %v", locked, err)
				}
			}
			crowded = append(crowded, ordersOf(fmt.Sprint("crowd ", i), perCold, sku)...)
		}
		for _, a := range crowd(ctx, s.Store, crowded) {
			if a.err != nil {
				t.Fatalf("%s, of an SKU that is free, beside %d that are locked: %v", a.req.Key, locked, a.err)
			}
		}
		select {
		case <-waited:
			t.Error("nobody waited for what was locked")
			waited <- nil
		default:
		}
		letGo()
		for _, a := range <-waited {
			if a.err != nil {
				t.Errorf("%s, which waited: %v", a.req.Key, a.err)
			}
		}
		s.sound(t)
	}
}

// storePool is the size of a Store's pool in these tests.
const storePool = 64

// sessions counts the server's sessions in the env's database that are not the test's own.
func (s *env) sessions(t *testing.T) int64 {
	t.Helper()
	query := "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE()"
	if s.e.Kind == devdb.Postgres {
		query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"
	}
	return s.count(t, query) - int64(s.db.Stats().OpenConnections)
}

// sessionsStayWithinThePool has callers of little patience come for SKUs that are locked, again and again. The server must not keep a
// session for each of them that has left.
func sessionsStayWithinThePool(t *testing.T, s *env) {
	const free, comings = 20, 10
	held := named("held", 20)
	s.stock(t, "free", free)
	for _, sku := range held {
		s.stock(t, sku, 1)
	}
	letGo := s.lockSKUs(t, held)
	most := int64(0)
	for i := range comings {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		var late []inventory.Request
		for _, sku := range held {
			late = append(late, ordersOf(fmt.Sprint("late ", i, " ", sku), 5, sku)...)
		}
		for _, a := range crowd(ctx, s.Store, late) {
			if a.err == nil || errors.Is(a.err, inventory.ErrSoldOut) {
				t.Errorf("%s, whose SKU is locked: %v", a.req.Key, a.err)
			}
		}
		cancel()
		most = max(most, s.sessions(t))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, a := range crowd(ctx, s.Store, ordersOf("free", free, "free")) {
		if a.err != nil {
			t.Errorf("%s, of an SKU that is free: %v", a.req.Key, a.err)
		}
	}
	if most > storePool {
		t.Errorf("the server had %d sessions, the pool is of %d", most, storePool)
	}
	letGo()
}
