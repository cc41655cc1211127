package inventory

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/inventory"
)

// lockRows locks rows in another transaction until letGo is called.
func (s *env) lockRows(t *testing.T, statements ...string) (letGo func()) {
	t.Helper()
	tx := suite.Must(s.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted}))(t)
	for _, statement := range statements {
		require.NoError(t, suite.Second(tx.ExecContext(t.Context(), statement)))
	}
	return func() {
		t.Helper()
		assert.NoError(t, tx.Rollback())
	}
}

// each has a statement for each name: a statement that reads the whole table would lock all of it.
func each(names []string, format string) (statements []string) {
	for _, name := range names {
		statements = append(statements, fmt.Sprintf(format, name))
	}
	return statements
}

// insertOrder is followed by values.
const insertOrder = "INSERT INTO dblock_reservation (reservation_key, sku, buyer, qty, state) VALUES "

func (s *env) lockSKUs(t *testing.T, skus []string) (letGo func()) {
	t.Helper()
	return s.lockRows(t, each(skus, "SELECT 1 FROM dblock_stock WHERE sku = '%s' FOR UPDATE")...)
}

// openKeys records orders of another SKU under some keys, in a transaction that stays open until
// letGo is called.
func (s *env) openKeys(t *testing.T, keys []string) (letGo func()) {
	t.Helper()
	return s.lockRows(t, each(keys, insertOrder+"('%s', 'cold', '', 1, 2)")...)
}

func named(name string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", name, i)
	}
	return names
}

// waiting sends requests that have to wait for the rows of another transaction. It returns when a
// session waits.
func (s *env) waiting(t *testing.T, reqs []inventory.Request) (answers func() []told) {
	t.Helper()
	got := make(chan []told, 1)
	go func() { got <- crowd(t.Context(), s.Store, reqs) }()
	s.waitsForARow(t)
	return func() []told {
		t.Helper()
		return suite.Wait(t, got, "orders that wait")
	}
}

// lockedSKUsLeaveTheRest has a transaction lock some SKUs, for which orders wait. All others are
// sold meanwhile, and those that wait when it ends.
func lockedSKUsLeaveTheRest(locked, waiters int) func(t *testing.T, s *env) {
	return func(t *testing.T, s *env) {
		var late, free []inventory.Request
		for _, sku := range named("held", locked) {
			s.stock(t, sku, int64(waiters))
			late = append(late, ordersOf("late "+sku, waiters, sku)...)
		}
		letGo := s.lockSKUs(t, named("held", locked))
		answers := s.waiting(t, late)
		for _, sku := range named("free", 20) {
			s.stock(t, sku, 20)
			s.sells(t, order("alone "+sku, sku, 1))
			free = append(free, ordersOf("crowd "+sku, 10, sku)...)
		}
		sellsTo(t, s.Store, free)
		for _, sku := range named("held", locked) {
			assert.Zero(t, s.countf(t, "SELECT count(*) FROM dblock_reservation WHERE sku = '%s'", sku), "sold though locked")
		}
		letGo()
		assert.Equal(t, map[string]int{"sold": len(late)}, outcomes(answers()))
		s.sound(t)
	}
}

const storePool = 64 // connections of a Store in these tests

// sessions counts the server's sessions in the env's database that are not the test's own.
func (s *env) sessions(t *testing.T) int64 {
	t.Helper()
	query := "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE()"
	if s.Postgres() {
		query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"
	}
	return s.Count(t, query) - int64(s.db.Stats().OpenConnections)
}

// sessionsStayWithinThePool has callers give up soon on SKUs that are locked, again and again. The
// server keeps no session for each of them.
func sessionsStayWithinThePool(t *testing.T, s *env) {
	skus := named("held", 20)
	s.stock(t, "free", 20)
	for _, sku := range skus {
		s.stock(t, sku, 1)
	}
	letGo := s.lockSKUs(t, skus)
	most := int64(0)
	for i := range 10 {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		var late []inventory.Request
		for _, sku := range skus {
			late = append(late, ordersOf(fmt.Sprint("late ", i, " ", sku), 5, sku)...)
		}
		for _, a := range crowd(ctx, s.Store, late) {
			assert.Error(t, a.err, a.req.Key)
			assert.NotErrorIs(t, a.err, inventory.ErrSoldOut, a.req.Key)
		}
		cancel()
		most = max(most, s.sessions(t))
	}
	sellsTo(t, s.Store, ordersOf("free", 20, "free"))
	assert.LessOrEqual(t, most, int64(storePool), "sessions of the server")
	letGo()
}

// keysOpenElsewhereStallNobody sends orders of a hot SKU under keys that an open transaction
// records for another SKU. They wait. All others of the hot SKU are sold meanwhile, however often
// the open keys are sent again.
func keysOpenElsewhereStallNobody(open int) func(t *testing.T, s *env) {
	return func(t *testing.T, s *env) {
		const rounds, size = 8, 40
		units := int64(rounds*(size+1) + open)
		s.stock(t, "hot", units)
		keys := named("open", open)
		letGo := s.openKeys(t, keys)
		waited := make(chan []told, rounds)
		for round := range rounds {
			reqs := ordersOf("open", open, "hot")
			go func() { waited <- crowd(t.Context(), s.Store, reqs) }()
			sellsTo(t, s.Store, ordersOf(fmt.Sprint("round ", round), size, "hot"))
			s.sells(t, order(fmt.Sprint("alone ", round), "hot", 1))
		}
		assert.Empty(t, waited, "orders that did not wait for their keys")
		letGo()
		var answers []told
		for range rounds {
			answers = append(answers, suite.Wait(t, waited, "orders that wait")...)
		}
		assert.Equal(t, map[string]int{"sold": open, "replayed": (rounds - 1) * open}, outcomes(answers))
		s.wantsBooks(t, "hot", 0, 0, units)
		s.sound(t)
	}
}

// keysOpenElsewhereLockNoStock sends such orders to a Store with a hook, which decides with the
// stock locked. It counts the statements that lock stock: one an order at most, which meets its
// open key with the stock locked. A search of the open keys under that lock would take about twice
// as many.
func keysOpenElsewhereLockNoStock(t *testing.T, s *env) {
	const open, free, rounds = 50, 20, 3
	dialer := &faultconn.Dialer{Watch: "Stock :many"} // of LockStock and LockFreeStock, by the names in their comments
	store := s.hookedOn(t, s.unprepared(t), dialer, s.o, ownRows)
	s.stock(t, "hot", rounds*(open+free))
	reqs := ordersOf("open", rounds*open, "hot")
	letGo := s.openKeys(t, named("open", rounds*open))
	waited := make(chan []told, rounds)
	for round := range rounds {
		before := dialer.Watched()
		go func() { waited <- crowd(t.Context(), store, reqs[round*open:][:open]) }()
		sellsTo(t, store, ordersOf(fmt.Sprint("round ", round), free, "hot"))
		n := dialer.Watched() - before
		assert.True(t, 0 < n && n <= open+free, "%d statements locked stock for %d orders", n, open+free)
	}
	letGo()
	for range rounds {
		assert.Equal(t, map[string]int{"sold": open}, outcomes(suite.Wait(t, waited, "orders that wait")))
	}
	s.wantsBooks(t, "hot", 0, 0, rounds*(open+free))
	s.wantsOwnRows(t)
}

// unprepared is the env's DSN for a driver that sends each statement with its text.
func (s *env) unprepared(t *testing.T) string {
	t.Helper()
	if !s.Postgres() {
		return s.dsn
	}
	u := suite.Must(url.Parse(s.dsn))(t)
	query := u.Query()
	query.Set("default_query_exec_mode", "exec")
	u.RawQuery = query.Encode()
	return u.String()
}
