package inventory

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"github.com/dblock-go/dblock/internal/devdb"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/inventory"
)

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
	return s.Locked(t, each(skus, "SELECT 1 FROM dblock_stock WHERE sku = '%s' FOR UPDATE")...)
}

// openKeys records orders of another SKU under the keys "open-0" and so on until letGo is called.
func (s *env) openKeys(t *testing.T, n int) (letGo func()) {
	t.Helper()
	return s.Locked(t, each(named("open", n), insertOrder+"('%s', 'cold', '', 1, 2)")...)
}

func named(name string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("%s-%d", name, i))
	}
	return names
}

func (mergeTests) LockedSKUsLeaveTheRest(t *testing.T, s *env) {
	s.lockedSKUsLeaveTheRest(t, 40, 5)
}

func (directTests) LockedSKUsLeaveTheRestDirect(t *testing.T, s *env) {
	s.lockedSKUsLeaveTheRest(t, 16, 3)
}

// lockedSKUsLeaveTheRest has a transaction lock some SKUs, for which orders wait. All others are
// sold meanwhile, and those that wait when it ends.
func (s *env) lockedSKUsLeaveTheRest(t *testing.T, locked, waiters int) {
	var late, free []inventory.Request
	for _, sku := range named("held", locked) {
		s.stock(t, sku, int64(waiters))
		late = append(late, ordersOf("late "+sku, waiters, sku)...)
	}
	letGo := s.lockSKUs(t, named("held", locked))
	waiting := suite.Begin(func() ([]requestResult, error) { return crowd(t.Context(), s.Store, late), nil })
	s.waitsForARow(t)
	for _, sku := range named("free", 5) { // each waits for a slot
		s.stock(t, sku, 20)
		s.sells(t, order("alone "+sku, sku, 1))
		free = append(free, ordersOf("crowd "+sku, 10, sku)...)
	}
	sellsTo(t, s.Store, free)
	assert.Zero(t, s.Count(t, "SELECT count(*) FROM dblock_reservation WHERE sku LIKE 'held-%'"), "sold though locked")
	letGo()
	assert.Equal(t, map[string]int{"sold": len(late)}, outcomes(suite.Must(waiting())(t)))
	s.sound(t)
}

// SessionsStayWithinThePool has callers give up soon on SKUs that are locked, again and again. The
// server keeps no session for each of them.
func (ownTests) SessionsStayWithinThePool(t *testing.T, e Inventory) {
	s, skus := e.env(t, inventory.Options{}), named("held", 20)
	s.stock(t, "free", 20)
	for _, sku := range skus {
		s.stock(t, sku, 1)
	}
	letGo := s.lockSKUs(t, skus)
	query, most := "SELECT count(*) FROM "+devdb.Processlist+" WHERE db = DATABASE()", int64(0)
	if s.Postgres() {
		query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"
	}
	for i := range 6 {
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
		most = max(most, s.Count(t, query)-int64(s.DB.DB.Stats().OpenConnections)) // without the test's own
	}
	sellsTo(t, s.Store, ordersOf("free", 20, "free"))
	assert.LessOrEqual(t, most, int64(80), "sessions of the server: a pool of 64, and some that end")
	letGo()
	assert.NoError(t, s.Close(t.Context())) // what was sent for callers that gave up has ended
}

func (mergeTests) KeysOpenElsewhereStallNobody(t *testing.T, s *env) {
	s.keysOpenElsewhereStallNobody(t, 20)
}

func (directTests) AKeyOpenElsewhereStallsNobodyDirect(t *testing.T, s *env) {
	s.keysOpenElsewhereStallNobody(t, 1)
}

// keysOpenElsewhereStallNobody sends orders of a hot SKU under keys that an open transaction
// records for another SKU. They wait. All others of the hot SKU are sold meanwhile, however often
// the open keys are sent again.
func (s *env) keysOpenElsewhereStallNobody(t *testing.T, open int) {
	const rounds, size = 8, 40
	units := int64(rounds*(size+1) + open)
	s.stock(t, "hot", units)
	letGo := s.openKeys(t, open)
	waited := make(chan []requestResult, rounds)
	for round := range rounds {
		go func() { waited <- crowd(t.Context(), s.Store, ordersOf("open", open, "hot")) }()
		sellsTo(t, s.Store, ordersOf(fmt.Sprint("round ", round), size, "hot"))
		s.sells(t, order(fmt.Sprint("alone ", round), "hot", 1))
	}
	assert.Empty(t, waited, "orders that did not wait for their keys")
	letGo()
	var answers []requestResult
	for range rounds {
		answers = append(answers, suite.Wait(t, waited, "orders that wait")...)
	}
	assert.Equal(t, map[string]int{"sold": open, "replayed": (rounds - 1) * open}, outcomes(answers))
	s.wantsBooks(t, "hot", 0, 0, units)
	s.sound(t)
}

// KeysOpenElsewhereLockNoStock sends such orders to a Store with a hook, which decides with the
// stock locked. It counts the statements that lock stock: one an order at most, which meets its
// open key with the stock locked. A search of the open keys under that lock would take about twice
// as many.
func (mergeTests) KeysOpenElsewhereLockNoStock(t *testing.T, s *env) {
	const open, free, rounds = 50, 20, 2
	dialer := &faultconn.Dialer{Watch: "Stock :many"} // of LockStock and LockFreeStock, by the names in their comments
	dsn := s.DSN
	if s.Postgres() {
		dsn = suite.AppendQuery(dsn, "default_query_exec_mode=exec") // each statement is sent with its text
	}
	store := s.hookedOn(t, dsn, dialer, s.o, ownRows)
	s.stock(t, "hot", rounds*(open+free))
	reqs := ordersOf("open", rounds*open, "hot")
	letGo := s.openKeys(t, rounds*open)
	waited := make(chan []requestResult, rounds)
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

// cached opens a Store that refuses from memory what was sold out, for longer than its test lasts.
func (s *env) cached(t *testing.T) *inventory.Store {
	t.Helper()
	return s.open(t, inventory.Options{SoldOutTTL: 10 * time.Second, Timeout: time.Minute})
}

// refusal is the refusal of an order that is sold out, or nil.
func refusal(store *inventory.Store, r inventory.Request) (out *inventory.SoldOutError) {
	_, err := store.Reserve(context.Background(), r)
	errors.As(err, &out)
	return out
}

// isLatched waits until a Store refuses orders of a sold-out SKU from memory.
func isLatched(t *testing.T, store *inventory.Store, sku string) {
	t.Helper()
	suite.Until(t, "it refuses from memory", func() bool {
		out := refusal(store, order("latch "+rand.Text(), sku, 1))
		require.NotNil(t, out, "an order of what is sold out")
		return out.Cached
	})
}

// ALatchRefusesWithoutLocks locks the row of an SKU that is sold out. Orders are refused
// nonetheless, and what was sold is known.
func (mergeTests) ALatchRefusesWithoutLocks(t *testing.T, s *env) {
	store := s.cached(t)
	s.stock(t, "sale", 3)
	s.sells(t, order("sold elsewhere", "sale", 1))
	sellsIn(t, store, order("sold", "sale", 1))
	sellsIn(t, store, order("sold, too", "sale", 1))
	isLatched(t, store, "sale")
	unlock := s.lockSKUs(t, []string{"sale"})
	for i := range 20 {
		r := order(fmt.Sprintf("late-%d", i), "sale", 1)
		r.Limit, r.Hold = int64(i%3), time.Duration(i%2)*time.Hour
		require.Equal(t, &inventory.SoldOutError{Key: r.Key, SKU: "sale", Wanted: 1, Cached: true}, refusal(store, r))
	}
	for _, key := range []string{"sold", "sold, too", "sold elsewhere"} {
		gets(t, store, order(key, "sale", 1), "replayed")
	}
	unlock()
	sellsIn(t, store, inventory.Request{Key: "gift", SKU: "sale", Qty: 1, Unstocked: true})
	s.sound(t)
}

// ALatchEndsWithWhatComesIn has units come in by each way. Those of its own Store are for sale at
// once, those of another a little later.
func (mergeTests) ALatchEndsWithWhatComesIn(t *testing.T, s *env) {
	store, brief := s.cached(t), s.open(t, inventory.Options{SoldOutTTL: 200 * time.Millisecond, Timeout: time.Minute})
	s.stock(t, "sale", 2)
	hold := held("held", "sale")
	s.sells(t, hold)
	s.sells(t, order("sold", "sale", 1))
	for name, comesIn := range map[string]func() error{
		"restock": func() error { return restock(t, store, "restock", "sale", 1) },
		"cancel":  func() error { return suite.Second(store.Cancel(t.Context(), hold.Key)) },
		"sweep": func() error {
			s.isDue(t, hold.Key)
			return suite.Second(store.Sweep(t.Context(), 10))
		},
		"repair": func() error {
			s.execf(t, "UPDATE dblock_reservation SET state = 3 WHERE reservation_key = '%s'", hold.Key)
			return suite.Second(store.Repair(t.Context(), "sale"))
		},
	} {
		isLatched(t, store, "sale")
		require.NoError(t, comesIn(), name)
		hold = held("after a "+name, "sale")
		sellsIn(t, store, hold)
	}
	isLatched(t, brief, "sale")
	s.restock(t, "elsewhere", "sale", 1)
	suite.Until(t, "what came in elsewhere is sold", func() bool {
		return refusal(brief, order("brief "+rand.Text(), "sale", 1)) == nil
	})
	records := s.open(t, inventory.Options{SoldOutTTL: 10 * time.Second, RecordRefusals: true})
	for i := range 50 {
		out := refusal(records, order(fmt.Sprintf("recorded %d", i), "sale", 1))
		require.False(t, out.Cached, "a Store that records refusals")
	}
	s.sound(t)
}

// ALatchNeedsAllOfTheStock sells all but the units of a locked row. They are for sale after it.
func (mergeTests) ALatchNeedsAllOfTheStock(t *testing.T, s *env) {
	store := s.cached(t)
	s.leaveAllotment(t, 4, "sale")
	s.stock(t, "other", 10)
	unlock := s.Locked(t, "SELECT 1 FROM dblock_stock WHERE sku = 'sale' AND bucket = 0 FOR UPDATE")
	lines := []inventory.Line{{SKU: "other", Qty: 1}, {SKU: "sale", Qty: 3}}
	_, err := store.ReserveAll(t.Context(), inventory.Cart{Key: "cart", Lines: lines})
	require.NoError(t, err)
	unlock()
	for i := range 7 {
		sellsIn(t, store, order(fmt.Sprint("free ", i), "sale", 1))
	}
	isLatched(t, store, "sale")
	s.sound(t)
}

// ARefusalWaitsForNoLock orders more than is left beside a transaction that has locked the row. The
// control is what the Store has not seen: units that came in by another Store are sold.
func (mergeTests) ARefusalWaitsForNoLock(t *testing.T, s *env) {
	store := s.open(t, s.o)
	s.stock(t, "sale", 7)
	s.stock(t, "other", 1)
	sold := order("sold elsewhere", "sale", 4)
	s.sells(t, sold)
	tooMany := func(key string) {
		t.Helper()
		want := &inventory.SoldOutError{Key: key, SKU: "sale", Wanted: 4, Available: 3}
		require.Equal(t, want, refusal(store, order(key, "sale", 4)))
	}
	tooMany("the first shows what is left")
	unlock := s.lockSKUs(t, []string{"sale"})
	for i := range 10 {
		tooMany(fmt.Sprint("too many ", i))
	}
	gets(t, store, sold, "replayed")
	unlock()
	lines := []inventory.Line{{SKU: "sale", Qty: 4}, {SKU: "other", Qty: 1}}
	_, err := store.ReserveAll(t.Context(), inventory.Cart{Key: "cart", Lines: lines})
	short := []inventory.Shortage{{SKU: "sale", Wanted: 4, Available: 3}}
	assert.Equal(t, short, suite.As[*inventory.SoldOutError](t, err).Short)
	s.restock(t, "elsewhere", "sale", 1)
	sellsIn(t, store, order("too many 0", "sale", 4))
	s.sound(t)
}

// ARefusalInAHundredCostsFewTrips counts the round trips of crowds of a hundred orders, one of
// which is not sold, beside those of crowds that are sold. A batch that decided its orders again,
// or one by one, would take many more. On Postgres a trigger counts the writes of limits: one an
// order.
func (mergeTests) ARefusalInAHundredCostsFewTrips(t *testing.T, s *env) {
	const waves, size = 10, 100
	writes := func() int64 { return 0 }
	if s.Postgres() {
		s.Exec(t, `CREATE SEQUENCE quota_writes`)
		s.Exec(t, `CREATE FUNCTION counted() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN PERFORM nextval('quota_writes'); RETURN NULL; END $$`)
		s.Exec(t, `CREATE TRIGGER counted AFTER INSERT OR UPDATE ON dblock_quota FOR EACH ROW EXECUTE FUNCTION counted()`)
		writes = func() int64 { return s.Count(t, "SELECT last_value FROM quota_writes") }
	}
	for want, make := range map[string]func(r *inventory.Request, sold inventory.Request){
		isSoldOut:  func(r *inventory.Request, _ inventory.Request) { r.Qty = inventory.MaxQty },
		"replayed": func(r *inventory.Request, sold inventory.Request) { *r = sold },
		isLimited:  func(r *inventory.Request, sold inventory.Request) { r.Buyer = sold.Buyer },
	} {
		dialer := &faultconn.Dialer{}
		store := s.openOn(t, dialer, s.o)
		s.stock(t, want, 4*waves*size)
		trips, before := [2]int{}, writes()
		for wave := range 2 * waves {
			reqs := ordersOf(fmt.Sprint(want, wave), size+1, want)
			if want == isLimited {
				for i := range reqs {
					reqs[i].Limit = 1
				}
			}
			sold, reqs := reqs[size], reqs[:size]
			s.sells(t, sold) // by another process
			wants := map[string]int{"sold": size}
			if wave%2 == 1 {
				make(&reqs[size/2], sold)
				wants = map[string]int{"sold": size - 1, want: 1}
			}
			dialer.Arm(0, 0, nil)
			assert.Equal(t, wants, outcomes(crowd(t.Context(), store, reqs)), want)
			trips[wave%2] += dialer.Writes()
		}
		assert.LessOrEqual(t, writes()-before, int64(2*waves*(size+1)*5/4), "%s: writes of limits", want)
		assert.LessOrEqual(t, trips[1], 3*trips[0], "%s: round trips", want)
	}
	s.sound(t)
}

// PassesOverLockedBuckets has a batch of several SKUs meet an SKU of which a bucket is locked: it
// passes over that, sells the others, and refuses no order for it.
func (ownTests) PassesOverLockedBuckets(t *testing.T, e Inventory) {
	o := inventory.Options{MaxInFlight: 1, Timeout: time.Minute} // orders queue behind one that waits
	s := e.env(t, o)
	for sku, units := range map[string]int64{"gate": 4, "free": 100, "few": 4, "none": 0} {
		s.stock(t, sku, units)
	}
	s.Exec(t, "UPDATE dblock_stock SET available = 3 WHERE sku = 'few'")
	s.Exec(t, "INSERT INTO dblock_stock (sku, bucket, available) VALUES ('few', 3, 1)")
	// After a refusal the batch looks up what is recorded, and so can refuse.
	soldOut := func(err error) { t.Helper(); assert.ErrorIs(t, err, inventory.ErrSoldOut) }
	soldOut(suite.Second(s.Reserve(t.Context(), order("before", "none", 1))))
	openGate := s.lockSKUs(t, []string{"gate"})
	release := s.Locked(t, "SELECT 1 FROM dblock_stock WHERE sku = 'few' AND bucket = 3 FOR UPDATE")
	ends := map[string]func() (inventory.Reservation, error){}
	for _, key := range []string{"gate", "free", "none", "few-1", "few-2", "few-3", "few-4"} {
		sku, _, _ := strings.Cut(key, "-")
		w := &waiter{Context: t.Context(), waits: make(chan struct{})}
		ends[key] = suite.Begin(func() (inventory.Reservation, error) { return s.Reserve(w, order(key, sku, 1)) })
		<-w.waits
	}
	openGate()
	for _, key := range []string{"gate", "free", "few-1", "few-2", "few-3"} {
		assert.NoError(t, suite.Second(ends[key]()), key)
	}
	soldOut(suite.Second(ends["none"]()))
	release()
	assert.NoError(t, suite.Second(ends["few-4"]()))
	soldOut(suite.Second(s.Reserve(t.Context(), order("few-5", "few", 1))))
	s.sound(t)
}
