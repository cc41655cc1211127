package inventory

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/inventory"
)

// wantsAllotted fails unless these units of the SKU "sale" are shared, and in allotments.
func (s *env) wantsAllotted(t *testing.T, available, allotted int64) {
	t.Helper()
	b := s.balance(t, "sale")
	assert.Equal(t, []int64{available, allotted, 0}, []int64{b.Available, b.Allotted, b.Drift()})
}

// allotted is how many units of an SKU are in allotments.
func (s *env) allotted(t *testing.T, sku string) int64 {
	t.Helper()
	return s.countf(t, "SELECT SUM(available) FROM dblock_stock WHERE bucket >= 1048576 AND sku = '%s'", sku)
}

// allotments is how many rows of stock are allotments.
func (s *env) allotments(t *testing.T) int64 {
	t.Helper()
	return s.Count(t, "SELECT count(*) FROM dblock_stock WHERE bucket >= 1048576")
}

// SellsFromAllotments has several processes with allotments sell an SKU to the last unit, and
// counts how often the shared row is written.
func (mergeTests) SellsFromAllotments(t *testing.T, s *env) {
	const stores, units, allotted = 4, 2000, 100
	s.stock(t, "a", units)
	s.Exec(t, "CREATE TABLE stock_write (bucket int)")
	if s.Postgres() {
		s.Exec(t, `CREATE FUNCTION stock_write() RETURNS trigger LANGUAGE plpgsql AS
			'BEGIN INSERT INTO stock_write VALUES (0); RETURN NULL; END'`)
		s.Exec(t, `CREATE TRIGGER stock_write AFTER UPDATE ON dblock_stock FOR EACH ROW
			WHEN (new.bucket = 0) EXECUTE FUNCTION stock_write()`)
	} else {
		s.Exec(t, `CREATE TRIGGER stock_write AFTER UPDATE ON dblock_stock FOR EACH ROW
			IF new.bucket = 0 THEN INSERT INTO stock_write VALUES (0); END IF`)
	}
	writes := func() int64 { return s.Count(t, "SELECT count(*) FROM stock_write") }
	var all []*inventory.Store
	for range stores {
		all = append(all, s.openClosed(t, inventory.Options{Allotment: allotted, Timeout: time.Minute}))
	}
	var sold atomic.Int64
	suite.Crowd(stores, func(i int) {
		sold.Add(int64(len(soldIn(t, all[i], ordersOf(fmt.Sprint("store ", i), (units+500)/stores, "a")))))
	})
	assert.EqualValues(t, units, sold.Load())
	assert.LessOrEqual(t, writes(), int64(units/allotted+2*stores))
	before := writes()
	s.restock(t, "more", "a", 20)
	for _, r := range ordersOf("one by one", 20, "a") {
		s.sells(t, r)
	}
	assert.EqualValues(t, 21, writes()-before, "the control has no allotment, and writes the shared row for each order")
	s.sound(t)
}

// AllotmentsAreStock sells, restocks and writes off beside an allotment.
func (mergeTests) AllotmentsAreStock(t *testing.T, s *env) {
	s.stock(t, "sale", 100)
	s.stock(t, "other", 1)
	store := s.open(t, inventory.Options{Allotment: 40, Timeout: time.Minute})
	sell := func(key string, qty int64) error {
		return suite.Second(store.Reserve(t.Context(), order(key, "sale", qty)))
	}
	for _, step := range []struct {
		what                string
		do                  func() error
		available, allotted int64
	}{
		{"the first order", func() error { return sell("one", 1) }, 60, 39},
		{"a delivery", func() error { return restock(t, s.Store, "up", "sale", 20) }, 80, 39},
		{"another delivery", func() error { return restock(t, s.Store, "more", "sale", 30) }, 110, 39},
		{"a write-off takes what is shared first", func() error { return restock(t, s.Store, "down", "sale", -10) }, 100, 39},
		{"a write-off of more", func() error { return restock(t, s.Store, "far down", "sale", -110) }, 0, 29},
		{"a write-off of allotted units", func() error { return restock(t, s.Store, "all but 3", "sale", -26) }, 0, 3},
		{"the rest of the allotment", func() error { return sell("rest", 2) }, 0, 1},
		{"a cart finds its unit in the allotment", func() error {
			cart := inventory.Cart{Key: "cart", Lines: []inventory.Line{{SKU: "sale", Qty: 1}, {SKU: "other", Qty: 1}}}
			return suite.Second(store.ReserveAll(t.Context(), cart))
		}, 0, 0},
		{"a delivery once all is gone", func() error { return restock(t, s.Store, "again", "sale", 50) }, 50, 0},
		{"another allotment", func() error { return sell("again", 5) }, 10, 35},
		{"Close returns it", func() error { return store.Close(t.Context()) }, 45, 0},
	} {
		assert.NoError(t, step.do(), step.what)
		s.wantsAllotted(t, step.available, step.allotted)
	}
	s.sound(t)
}

// SeesWhatIsAllottedMeanwhile has calls wait for stock that moves to a new allotment meanwhile. The
// test makes that allotment by hand, to be as slow as it takes.
func (mergeTests) SeesWhatIsAllottedMeanwhile(t *testing.T, s *env) {
	for name, call := range map[string]func() error{
		"a cart": func() error {
			lines := []inventory.Line{{SKU: "a cart", Qty: 7}, {SKU: "other", Qty: 1}}
			return suite.Second(s.ReserveAll(t.Context(), inventory.Cart{Key: "a cart", Lines: lines}))
		},
		"an order with a limit": func() error {
			r := order("limited", "an order with a limit", 7)
			r.Limit = 7
			return suite.Second(s.Reserve(t.Context(), r))
		},
		"a write-off": func() error { return restock(t, s.Store, "off", "a write-off", -7) },
		"a transaction": func() error {
			for _, begin := range s.e.Callers { // any form
				tx, err := begin(t.Context(), s.DSN, sql.LevelReadCommitted)
				if err != nil {
					return err
				}
				defer tx.Close()
				_, err = tx.Reserve(t.Context(), s.Store, order("in a transaction", "a transaction", 7))
				return errors.Join(err, tx.Commit(t.Context()))
			}
			return nil
		},
	} {
		s.stock(t, name, 10)
		s.restock(t, "other "+name, "other", 1)
		tx := suite.Must(s.DB.DB.BeginTx(t.Context(), nil))(t)
		for _, statement := range []string{
			"UPDATE dblock_stock SET available = 0, epoch = epoch + 1 WHERE bucket = 0 AND sku = '" + name + "'",
			"INSERT INTO dblock_stock (sku, bucket, available) VALUES ('" + name + "', 1048576, 10)",
		} {
			require.NoError(t, suite.Second(tx.ExecContext(t.Context(), statement)))
		}
		end := suite.Begin(func() (any, error) { return nil, call() })
		s.waitsForARow(t)
		require.NoError(t, tx.Commit())
		assert.NoError(t, suite.Second(end()), name)
		b := s.balance(t, name)
		assert.EqualValues(t, 3, b.Available+b.Allotted, name)
	}
	s.sound(t)
}

// TakesAnotherAllotment has a process lose its lease, and another process get it, while both sell
// on: the first one takes another allotment.
func (mergeTests) TakesAnotherAllotment(t *testing.T, s *env) {
	s.stock(t, "sale", 100_000)
	o := inventory.Options{Allotment: 10, Timeout: time.Minute}
	first, second := s.openClosed(t, o), s.openClosed(t, o)
	sell := func(store *inventory.Store, key string) {
		require.NoError(t, suite.Second(store.Reserve(t.Context(), order(key, "sale", 1))))
	}
	sell(first, "first")
	s.Exec(t, "DELETE FROM dblock_member")
	sell(second, "second")
	assert.EqualValues(t, 1, s.allotments(t), "the second process has the lost lease")
	n := 0
	suite.Until(t, "the first process takes another one", func() bool {
		n++
		sell(first, fmt.Sprint("on ", n))
		return s.allotments(t) > 1
	})
	s.sound(t)
}

// frozenTimeout is the Options.Timeout of Stores that get no answer.
const frozenTimeout = 5 * time.Second

// leaveAllotment puts 3 of 10 units of an SKU into the allotment of a process that is gone.
func (s *env) leaveAllotment(t *testing.T, number int, sku string) {
	t.Helper()
	s.stock(t, sku, 10)
	s.execf(t, "UPDATE dblock_stock SET available = 7 WHERE sku = '%s'", sku)
	s.execf(t, "INSERT INTO dblock_stock (sku, bucket, available) VALUES ('%s', %d, 3)", sku, 1048576+number)
}

// ALeftAllotmentStopsNoSweep has one SKU of a dead process's allotment locked or refused, or the
// allotment's lease locked, or the table of leases missing. A hold on another SKU is swept by the
// same call, and the other SKUs and allotments are returned. That one is returned afterwards.
func (mergeTests) ALeftAllotmentStopsNoSweep(t *testing.T, s *env) {
	for name, c := range map[string]struct {
		begin func(s *env, t *testing.T) (end func())
		stays string // SKUs that stay in allotments meanwhile
		is    error
		says  string
	}{
		"control": {func(*env, *testing.T) func() { return func() {} }, "", nil, ""},
		"stock":   {func(s *env, t *testing.T) func() { return s.lockSKUs(t, []string{"bad"}) }, "bad", nil, ""},
		"bucket": {func(s *env, t *testing.T) func() {
			return s.Locked(t, "SELECT 1 FROM dblock_stock WHERE sku = 'bad' AND bucket = 1048580 FOR UPDATE")
		}, "bad", nil, ""},
		"lease": {func(s *env, t *testing.T) func() {
			return s.Locked(t, "SELECT 1 FROM dblock_lease WHERE lease_key = 'dblock allotment 4' FOR UPDATE")
		}, "bad beside", dblock.ErrBusy, ""},
		"trigger": {func(s *env, t *testing.T) func() {
			return s.Trigger(t, "AFTER UPDATE", "dblock_stock", "NEW.sku = 'bad'", suite.Raise(s.Kind, "P0001", "frozen"))
		}, "bad", inventory.ErrRejected, `"bad"`},
		"all leases": {func(s *env, t *testing.T) func() {
			s.Exec(t, "ALTER TABLE dblock_lease RENAME TO hidden")
			return func() { s.Exec(t, "ALTER TABLE hidden RENAME TO dblock_lease") }
		}, "bad beside elsewhere", dblock.ErrSchema, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := s.another(t)
			t.Cleanup(func() { _ = s.Close(context.WithoutCancel(t.Context())) })
			s.stock(t, "sale", 10)
			s.leaveAllotment(t, 4, "first")
			suite.Until(t, "the lease is made", func() bool { return suite.Second(s.openClosed(t, s.o).Sweep(t.Context(), 1)) == nil })
			skus := []string{"bad", "beside", "elsewhere"}
			for i, sku := range skus {
				s.leaveAllotment(t, 4+i/2, sku)
			}
			s.sells(t, held("due", "sale"))
			s.isDue(t, "due")
			end := c.begin(s, t)
			swept := 0
			suite.Until(t, "all but what is locked or refused is returned", func() bool {
				n, err := s.Sweep(suite.Soon(t), 10)
				swept += n
				left := s.Texts(t, "SELECT sku FROM dblock_stock WHERE bucket >= 1048576 AND available > 0 ORDER BY sku")
				return strings.Join(left, " ") == c.stays && errors.Is(err, c.is) && (err == nil || strings.Contains(err.Error(), c.says))
			})
			assert.Equal(t, 1, swept)
			end()
			suite.Until(t, "all is returned", func() bool {
				_, _ = s.Sweep(t.Context(), 10)
				return s.allotted(t, "bad")+s.allotted(t, "beside")+s.allotted(t, "elsewhere") == 0
			})
			s.sound(t)
		})
	}
}

// allot sells units of an SKU until the Store has an allotment of it: on a busy machine the first
// try may take too long.
func (s *env) allot(t *testing.T, store *inventory.Store, sku string) {
	t.Helper()
	before := s.allotments(t)
	suite.Until(t, "it has an allotment", func() bool {
		_, _ = store.Reserve(t.Context(), order(fmt.Sprint(sku, " ", time.Now().UnixNano()), sku, 1))
		return s.allotments(t) > before
	})
}

// ClosesBesideALockedSKU closes a Store with allotments of three SKUs, the first of which is
// locked: the others are returned, and the error names the one.
func (mergeTests) ClosesBesideALockedSKU(t *testing.T, s *env) {
	store := s.open(t, inventory.Options{Allotment: 5, Timeout: frozenTimeout})
	skus := named("sale", 3)
	for _, sku := range skus {
		s.stock(t, sku, 1000)
		s.allot(t, store, sku)
	}
	release := s.lockSKUs(t, skus[:1])
	err := store.Close(t.Context())
	assert.ErrorIs(t, err, dblock.ErrBusy)
	assert.ErrorContains(t, err, skus[0])
	release()
	for i, sku := range skus {
		assert.Equal(t, i == 0, s.allotted(t, sku) > 0, "%s is allotted after Close", sku)
	}
	s.sound(t)
}

// ClosesBesideASilentSweep has the network fall silent at each of the first calls of a Store's
// first Sweep, which opens its Locker. Close ends with its context, the Sweep after Timeout.
func (mergeTests) ClosesBesideASilentSweep(t *testing.T, s *env) {
	const silentCalls = 12
	s.stock(t, "sale", 1000)
	s.allot(t, s.openClosed(t, inventory.Options{Allotment: 5}), "sale")
	suite.Crowd(silentCalls, func(k int) {
		d := &faultconn.Dialer{}
		store, closePool, err := s.e.OpenOn(t.Context(), s.DSN, d, inventory.Options{Timeout: suite.CutTimeout})
		if !assert.NoError(t, err) {
			return
		}
		defer suite.ClosePool(d, closePool)
		silent, swept, closed := make(chan struct{}), make(chan struct{}), make(chan struct{})
		d.Arm(k+1, faultconn.HookBefore, func() {
			d.Arm(1, faultconn.Stall, nil)
			close(silent)
		})
		go func() {
			defer close(swept)
			_, _ = store.Sweep(context.Background(), 10)
		}()
		select {
		case <-silent:
		case <-swept:
			t.Errorf("the sweep has fewer than %d calls", k+1)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		go func() {
			defer close(closed)
			_ = store.Close(ctx)
		}()
		for what, end := range map[string]chan struct{}{"Close": closed, "Sweep": swept} {
			select {
			case <-end:
			case <-time.After(time.Minute):
				t.Errorf("silent from call %d on, %s hangs", k+1, what)
			}
		}
	})
}

// ClosesWithoutAServer closes Stores that have allotments while the server is frozen, and after it
// was killed. Close ends, and its error says so. Then a sweep returns what was left. In a soak
// Close has no bound but its own.
func (ownTests) ClosesWithoutAServer(t *testing.T, e Inventory) {
	s, server := e.envOfItsOwn(t)
	if server == nil {
		t.Log("this server cannot be killed: nothing is shown")
		return
	}
	s.stock(t, "sale", 100)
	o := inventory.Options{Allotment: 10, Timeout: frozenTimeout}
	first, second := s.open(t, o), s.open(t, o)
	s.allot(t, first, "sale")
	s.allot(t, second, "sale")
	closes := func(store *inventory.Store) error {
		ctx, cancel := context.WithCancel(context.Background())
		if os.Getenv(suite.EnvSoak) == "" {
			ctx, cancel = context.WithTimeout(ctx, 2*frozenTimeout)
		}
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- store.Close(ctx) }()
		return suite.Wait(t, ended, "Close")
	}
	require.NoError(t, server.Freeze())
	assert.Error(t, closes(first), "Close on a frozen server")
	require.NoError(t, errors.Join(server.Thaw(), server.Kill()))
	assert.Error(t, closes(second), "Close without a server")
	require.NoError(t, server.Restart(t.Context()))
	s.Exec(t, "DELETE FROM dblock_member")
	require.NoError(t, suite.Second(s.openClosed(t, s.o).Sweep(t.Context(), 10)))
	s.wantsAllotted(t, 100-s.balance(t, "sale").Sold, 0)
}
