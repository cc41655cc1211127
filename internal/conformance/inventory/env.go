package inventory

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/inventory"
)

// env is one Store on a database of its own, and the suite's own connections to that.
type env struct {
	*inventory.Store
	*suite.DB
	e Inventory
	o inventory.Options

	crowds int // how many were sent
}

func (e Inventory) env(t *testing.T, o inventory.Options) *env {
	t.Helper()
	return e.envOn(t, suite.Migrated(t, e.Kind), o)
}

func (e Inventory) envOn(t *testing.T, db *suite.DB, o inventory.Options) *env {
	t.Helper()
	s := &env{DB: db, e: e, o: o}
	s.Store = s.open(t, o)
	return s
}

// another is an env like this one on another database, for a subtest.
func (s *env) another(t *testing.T) *env {
	t.Helper()
	return s.e.env(t, s.o)
}

// envOfItsOwn is an env on a server of its own that syncs its commits. If no server can be killed
// here, it is one on the server of all tests, and server is nil.
func (e Inventory) envOfItsOwn(t *testing.T) (s *env, server *devdb.Server) {
	t.Helper()
	e.Open = func(ctx context.Context, dsn string, o inventory.Options) (*inventory.Store, func(), error) {
		return e.OpenOn(ctx, dsn, &faultconn.Dialer{}, o) // it strikes nothing, and its driver logs nothing
	}
	server, db := suite.OwnServer(t, e.Kind)
	if server == nil {
		s = e.env(t, inventory.Options{})
		s.DB.DB.SetMaxIdleConns(0)
		return s, nil
	}
	return e.envOn(t, db, inventory.Options{}), server
}

// open makes a further Store on the same database, as another process would.
func (s *env) open(t *testing.T, o inventory.Options) *inventory.Store {
	t.Helper()
	store, closePool, err := s.e.Open(t.Context(), s.DSN, o)
	require.NoError(t, err)
	t.Cleanup(closePool)
	return store
}

// openOn is open with connections of the dialer's.
func (s *env) openOn(t *testing.T, dialer *faultconn.Dialer, o inventory.Options) *inventory.Store {
	t.Helper()
	store, closePool, err := s.e.OpenOn(t.Context(), s.DSN, dialer, o)
	require.NoError(t, err)
	t.Cleanup(closePool)
	return store
}

// openClosed is open for a Store that is closed before the test ends, as one with an allotment has
// to be.
func (s *env) openClosed(t *testing.T, o inventory.Options) *inventory.Store {
	t.Helper()
	store := s.open(t, o)
	t.Cleanup(func() { assert.NoError(t, store.Close(context.WithoutCancel(t.Context()))) })
	return store
}

func (s *env) execf(t *testing.T, format string, args ...any) {
	t.Helper()
	s.Exec(t, fmt.Sprintf(format, args...))
}

func (s *env) countf(t *testing.T, format string, args ...any) int64 {
	t.Helper()
	return s.Count(t, fmt.Sprintf(format, args...))
}

// waitsForARow waits until a session of the database waits for a row lock.
func (s *env) waitsForARow(t *testing.T) {
	t.Helper()
	suite.Until(t, "a session waits for a row", func() bool {
		if s.Kind != devdb.Postgres {
			time.Sleep(150 * time.Millisecond) // InnoDB does not update what is read more often than every 100 ms
		}
		return s.Count(t, suite.RowWaits(s.Kind)) > 0
	})
}

// stock is the first delivery of an SKU.
func (s *env) stock(t *testing.T, sku string, units int64) {
	t.Helper()
	s.restock(t, "stock of "+sku, sku, units)
}

func (s *env) restock(t *testing.T, id, sku string, delta int64) {
	t.Helper()
	require.NoError(t, restock(t, s.Store, id, sku, delta), id)
}

func restock(t *testing.T, store *inventory.Store, id, sku string, delta int64) error {
	return suite.Second(store.Restock(t.Context(), inventory.Adjustment{ID: id, SKU: sku, Delta: delta}))
}

func (s *env) balance(t *testing.T, sku string) inventory.Balance {
	t.Helper()
	books := suite.Must(s.Audit(t.Context(), sku))(t)
	require.Len(t, books, 1, sku)
	return books[0]
}

// wantsBooks fails unless the balance of an SKU, whose stock is in no allotment, is this.
func (s *env) wantsBooks(t *testing.T, sku string, available, held, sold int64) {
	t.Helper()
	want := inventory.Balance{SKU: sku, Restocked: available + held + sold, Available: available, Held: held, Sold: sold}
	assert.Equal(t, want, s.balance(t, sku))
}

// isDue ends the hold of reservations, the first one first.
func (s *env) isDue(t *testing.T, keys ...string) {
	t.Helper()
	for i, key := range keys {
		require.NoError(t, s.expire(t.Context(), key, int64(i+1)))
	}
}

// expire ends a hold, at a second of a day long ago.
func (s *env) expire(ctx context.Context, key string, moment int64) error {
	at := time.Date(2000, 1, 1, 0, 0, int(moment), 0, time.UTC).Format("2006-01-02 15:04:05")
	if s.Postgres() {
		at += "+00"
	}
	return suite.Second(s.DB.DB.ExecContext(ctx, fmt.Sprintf(
		"UPDATE dblock_reservation SET expires_at = '%s' WHERE reservation_key = '%s' AND state = 1", at, key)))
}

// sound fails if the books of any SKU don't balance, or an order is in them twice.
func (s *env) sound(t *testing.T) {
	t.Helper()
	for _, b := range suite.Must(s.Audit(t.Context()))(t) {
		if b.Drift() != 0 || b.Available < 0 {
			t.Errorf("the books of %q are off by %d: %+v", b.SKU, b.Drift(), b)
		}
	}
	for what, query := range map[string]string{
		"orders lack a line, are in the books twice, or have lines in different states": `SELECT count(*) FROM (
			SELECT 1 FROM dblock_reservation GROUP BY reservation_key
			HAVING count(*) <> max(line) + 1 OR count(DISTINCT line) <> count(*) OR min(state) <> max(state)) b`,
		"buyers' limits count something else than what they have": `SELECT count(*) FROM (
			SELECT b.sku, b.buyer FROM (
				SELECT q.sku, q.buyer, q.used AS n FROM dblock_quota q
				UNION ALL SELECT r.sku, r.buyer, -r.qty FROM dblock_reservation r WHERE r.limited AND r.state IN (1, 2)
			) b GROUP BY b.sku, b.buyer HAVING sum(b.n) <> 0) c`,
	} {
		assert.Zero(t, s.Count(t, query), what)
	}
}

// wants does an op and compares the whole reply.
func (s *env) wants(t *testing.T, d op, want reply) {
	t.Helper()
	if diff := cmp.Diff(want, d.do(t.Context(), s.Store)); diff != "" {
		t.Errorf("%s %q (-want +got):\n%s", d.What, d.Request.Key, diff)
	}
}

func order(key, sku string, qty int64) inventory.Request {
	return inventory.Request{Key: key, SKU: sku, Buyer: "buyer of " + key, Qty: qty}
}

// held is an order for one unit that is held for an hour.
func held(key, sku string) inventory.Request {
	r := order(key, sku, 1)
	r.Hold = time.Hour
	return r
}

func ordersFor(n int, sku string) []inventory.Request { return ordersOf("order", n, sku) }

// ordersOf are orders for one unit whose keys begin with a name.
func ordersOf(name string, n int, sku string) []inventory.Request {
	reqs := make([]inventory.Request, n)
	for i := range reqs {
		reqs[i] = order(fmt.Sprintf("%s-%d", name, i), sku, 1)
	}
	return reqs
}

// requestResult is the result of one request.
type requestResult struct {
	req inventory.Request
	res inventory.Reservation
	err error
}

// crowd sends the requests at the same time and returns the last result of each.
func crowd(ctx context.Context, store *inventory.Store, reqs []inventory.Request) []requestResult {
	answers := make([]requestResult, len(reqs))
	suite.Crowd(len(reqs), func(i int) {
		res, err := store.Reserve(ctx, reqs[i])
		answers[i] = requestResult{reqs[i], res, err}
	})
	return answers
}

// soldIn sends the requests at the same time and returns the orders that are sold, by key. It fails
// on each error that is not ErrSoldOut.
func soldIn(t *testing.T, store *inventory.Store, reqs []inventory.Request) map[string]inventory.Reservation {
	t.Helper()
	sold := map[string]inventory.Reservation{}
	for _, a := range crowd(t.Context(), store, reqs) {
		switch {
		case a.err == nil:
			sold[a.req.Key] = a.res
		case !errors.Is(a.err, inventory.ErrSoldOut):
			t.Errorf("%s: %v", a.req.Key, a.err)
		}
	}
	return sold
}

// sellsTo sends the requests at the same time and fails unless each is sold or held.
func sellsTo(t *testing.T, store *inventory.Store, reqs []inventory.Request) {
	t.Helper()
	for _, a := range crowd(t.Context(), store, reqs) {
		assert.NoError(t, a.err, a.req.Key)
	}
}

// doAtOnce does all ops at the same time, in the Stores in turn.
func (s *env) doAtOnce(t *testing.T, stores []*inventory.Store, ops []op, check func(op, reply)) {
	t.Helper()
	replies := make([]reply, len(ops))
	suite.Crowd(len(ops), func(i int) { replies[i] = ops[i].do(t.Context(), stores[i%len(stores)]) })
	for i, d := range ops {
		check(d, replies[i])
	}
}
