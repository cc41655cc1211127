package inventory

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
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

// hookedOn makes the owner's table, and a Store with a hook.
func (s *env) hookedOn(t *testing.T, dsn string, dialer *faultconn.Dialer, o inventory.Options, hook Hook) *inventory.Store {
	t.Helper()
	s.ownsOrders(t)
	store, closePool, err := s.e.OpenHooked(t.Context(), dsn, dialer, o, hook)
	require.NoError(t, err)
	t.Cleanup(closePool)
	return store
}

func (s *env) hooked(t *testing.T, hook Hook) *inventory.Store {
	t.Helper()
	return s.hookedOn(t, s.DSN, &faultconn.Dialer{}, s.o, hook)
}

// ownsOrders makes the owner's table of orders.
func (s *env) ownsOrders(t *testing.T) {
	t.Helper()
	s.Exec(t, "CREATE TABLE IF NOT EXISTS own_order (order_key varchar(200) NOT NULL PRIMARY KEY, n int NOT NULL)")
}

// ownRows is a hook that writes a row for each order into the owner's table.
func ownRows(_ context.Context, exec func(string) error, granted []inventory.Reservation) error {
	values := make([]string, len(granted))
	for i, r := range granted {
		values[i] = fmt.Sprintf("('%s', %d)", strings.ReplaceAll(r.Key, "'", "''"), max(1, len(r.Lines)))
	}
	return exec("INSERT INTO own_order (order_key, n) VALUES " + strings.Join(values, ", "))
}

// wantsOwnRows fails if an order has no row of the owner's, or the reverse.
func (s *env) wantsOwnRows(t *testing.T) {
	t.Helper()
	assert.Empty(t, s.ownRowsAmiss(t, ""))
	s.sound(t)
}

// ownRowsAmiss compares the owner's rows with the orders whose keys begin so.
func (s *env) ownRowsAmiss(t *testing.T, prefix string) (faults []string) {
	t.Helper()
	for what, query := range map[string]string{
		"orders without a row of the owner's": `SELECT count(*) FROM dblock_reservation r
			WHERE r.state IN (1, 2) AND r.line = 0 AND r.reservation_key LIKE '%s%%' AND NOT EXISTS (SELECT 1 FROM own_order o WHERE o.order_key = r.reservation_key)`,
		"rows of the owner's without an order": `SELECT count(*) FROM own_order o WHERE o.order_key LIKE '%s%%'
			AND NOT EXISTS (SELECT 1 FROM dblock_reservation r WHERE r.reservation_key = o.order_key AND r.state IN (1, 2))`,
	} {
		if n := s.countf(t, query, prefix); n != 0 {
			faults = append(faults, fmt.Sprintf("%d %s", n, what))
		}
	}
	return faults
}

// WritesTheOwnersRows sells orders and carts of every kind with a hook, which gets each once,
// whole, and as it is sold.
func (mergeTests) WritesTheOwnersRows(t *testing.T, s *env) {
	var mu sync.Mutex
	calls := map[string][]inventory.Reservation{}
	store := s.hooked(t, func(ctx context.Context, exec func(string) error, granted []inventory.Reservation) error {
		mu.Lock()
		defer mu.Unlock()
		for _, r := range granted {
			calls[r.Key] = append(calls[r.Key], r)
		}
		return ownRows(ctx, exec, granted)
	})
	s.stock(t, "sale", 100)
	s.stock(t, "other", 100)
	lines := []inventory.Line{{SKU: "other", Qty: 2}, {SKU: "sale", Qty: 1}}
	cart := inventory.Cart{Key: "cart", Buyer: "ann", Lines: lines}
	require.NoError(t, suite.Second(store.ReserveAll(t.Context(), cart)))
	require.NoError(t, suite.Second(store.Reserve(t.Context(), withLimit("held", "sale"))))
	s.sells(t, order("sold without the hook", "sale", 1))
	reqs := append(ordersFor(97, "sale"), ordersOf("late", 40, "sale")...)
	reqs = append(reqs, order("sold without the hook", "sale", 1))
	sold := soldIn(t, store, reqs)
	assert.Len(t, sold, 98)
	assert.Equal(t, slices.Sorted(maps.Keys(sold)), slices.Sorted(maps.Keys(soldIn(t, store, reqs))), "sent again")
	again, err := store.ReserveAll(t.Context(), cart)
	assert.True(t, err == nil && again.Replayed, "the cart again: %+v, %v", again, err)
	want := inventory.Reservation{Key: "cart", Buyer: "ann", Lines: lines, State: inventory.ReservationSold}
	assert.Equal(t, []inventory.Reservation{want}, calls["cart"])
	if got := calls["held"]; assert.Len(t, got, 1) {
		assert.Equal(t, inventory.ReservationHeld, got[0].State)
		assert.Greater(t, time.Until(got[0].ExpiresAt), time.Minute)
	}
	for key := range calls {
		assert.True(t, sold[key].Key != "" || key == "cart" || key == "held", "%s was refused, and passed to the hook", key)
	}
	assert.Empty(t, calls["sold without the hook"], "recorded before, and passed to the hook")
	s.Exec(t, "INSERT INTO own_order (order_key, n) VALUES ('sold without the hook', 1)")
	s.wantsOwnRows(t)
	s.sound(t)
}

// AHookFailsForOneOrder has a hook fail for some orders of a crowd, in every way: they are refused
// alone, with the reason.
func (mergeTests) AHookFailsForOneOrder(t *testing.T, s *env) {
	store := s.hooked(t, func(ctx context.Context, exec func(string) error, granted []inventory.Reservation) error {
		if err := ownRows(ctx, exec, granted); err != nil {
			return err
		}
		for _, r := range granted {
			switch r.Key {
			case "order-10":
				return errors.New("no such customer")
			case "order-20":
				panic("out of memory, says the hook")
			case "order-30":
				return exec("INSERT INTO own_order (order_key, n) VALUES ('order-30, too', NULL)")
			case "order-40":
				return exec("INSERT INTO nonsense (order_key) VALUES ('order-40')")
			case "order-60":
				return suite.NoHostError
			case "order-70":
				runtime.Goexit()
			case "order-80":
				return exec("SELECT n FROM own_order") // its rows are not read
			case "order-90":
				return errors.Join(exec("SELECT n FROM own_order"), errors.New("no such order"))
			case "order-100":
				return exec("SELECT /* prepared */ n FROM own_order")
			}
		}
		return nil
	})
	s.Exec(t, "INSERT INTO own_order (order_key, n) VALUES ('order-50', 1)")
	s.stock(t, "sale", 1000)
	why := map[string]string{
		"order-10": "no such customer", "order-20": "out of memory, says the hook", "order-30": "null",
		"order-40": "nonsense", "order-50": "uplicate", "order-60": "HostError",
		"order-70": "runtime.Goexit", "order-80": "has not read the rows", "order-90": "no such order",
		"order-100": "has not read the rows",
	}
	answers := crowd(t.Context(), store, ordersFor(200, "sale"))
	for key := range why { // alone, on the caller's goroutine
		r := order(key, "sale", 1)
		answers = append(answers, requestResult{req: r, err: suite.Second(store.Reserve(t.Context(), r))})
	}
	for _, a := range answers {
		if want := why[a.req.Key]; want == "" {
			assert.NoError(t, a.err, a.req.Key)
		} else {
			assert.ErrorIs(t, a.err, inventory.ErrRejected, a.req.Key)
			assert.ErrorContains(t, a.err, want, a.req.Key)
		}
	}
	require.NoError(t, suite.Second(store.Reserve(t.Context(), order("after", "sale", 1))))
	assert.NoError(t, store.Close(t.Context()))
	s.Exec(t, "DELETE FROM own_order WHERE order_key = 'order-50'")
	s.wantsBooks(t, "sale", 809, 0, 191)
	s.wantsOwnRows(t)
}

// AHookWaitsForOneOrder has a hook wait for a row that another transaction has locked, for one
// order of a crowd. The others are sold meanwhile.
func (mergeTests) AHookWaitsForOneOrder(t *testing.T, s *env) {
	s.Exec(t, "CREATE TABLE customer (n int)")
	s.Exec(t, "INSERT INTO customer VALUES (0)")
	o, reqs := s.o, ordersFor(20, "sale")
	o.Timeout = time.Minute
	const write = "UPDATE customer SET n = n + 1"
	store := s.hookedOn(t, s.DSN, &faultconn.Dialer{}, o, func(_ context.Context, exec func(string) error, granted []inventory.Reservation) error {
		if slices.ContainsFunc(granted, func(r inventory.Reservation) bool { return r.Key == reqs[5].Key }) {
			return exec(write)
		}
		return nil
	})
	s.stock(t, "sale", 20)
	tx := s.Tx(t, sql.LevelDefault, write)
	answers := make(chan requestResult, len(reqs))
	for _, r := range reqs {
		go func() {
			answers <- requestResult{r, inventory.Reservation{}, suite.Second(store.Reserve(t.Context(), r))}
		}()
	}
	for range reqs[1:] {
		a := <-answers
		assert.True(t, a.err == nil && a.req.Key != reqs[5].Key, "%s: %v", a.req.Key, a.err)
	}
	require.NoError(t, tx.Commit())
	assert.NoError(t, (<-answers).err)
}

// AHookIsRunAgain has the hooks of two Stores lock the owner's rows in opposite orders: the victim
// of the deadlock runs again, and no caller gets an error.
func (mergeTests) AHookIsRunAgain(t *testing.T, s *env) {
	var victims atomic.Int64
	var locked sync.WaitGroup
	locked.Add(2)
	crosswise := func(first, second string) Hook {
		meet := sync.OnceFunc(func() {
			locked.Done()
			locked.Wait()
		})
		return func(ctx context.Context, exec func(string) error, granted []inventory.Reservation) error {
			for _, row := range []string{first, second} {
				if err := exec("UPDATE own_order SET n = n + 1 WHERE order_key = '" + row + "'"); err != nil {
					victims.Add(1)
					return err
				}
				meet() // each has its first row
			}
			return ownRows(ctx, exec, granted)
		}
	}
	stores := []*inventory.Store{s.hooked(t, crosswise("x", "y")), s.hooked(t, crosswise("y", "x"))}
	s.Exec(t, "INSERT INTO own_order (order_key, n) VALUES ('x', 0), ('y', 0)")
	s.stock(t, "sale-0", 10)
	s.stock(t, "sale-1", 10)
	suite.Crowd(2, func(i int) {
		sku := fmt.Sprint("sale-", i)
		assert.NoError(t, suite.Second(stores[i].Reserve(t.Context(), order(sku, sku, 1))))
	})
	assert.NotZero(t, victims.Load())
	s.Exec(t, "DELETE FROM own_order WHERE order_key IN ('x', 'y')")
	s.wantsOwnRows(t)
}

// AHookThatKeepsItsErrorsIsFound has hooks return nil although their transaction has failed or
// ended, or an error that a Store has returned: nothing is sold.
func (mergeTests) AHookThatKeepsItsErrorsIsFound(t *testing.T, s *env) {
	for name, spoil := range map[string]func(exec func(string) error) error{
		"ended":  func(exec func(string) error) error { return exec("ROLLBACK") },
		"anew":   func(exec func(string) error) error { return exec("ROLLBACK AND CHAIN") },
		"failed": func(exec func(string) error) error { return s.fails(t, exec) },
		"limit":  func(func(string) error) error { return &inventory.BuyerLimitError{SKU: "another"} },
		"twice": func(exec func(string) error) error {
			_ = exec("INSERT INTO own_order VALUES ('z', 0), ('z', 0)")
			return nil
		},
	} {
		store := s.hooked(t, func(_ context.Context, exec func(string) error, _ []inventory.Reservation) error {
			return spoil(exec)
		})
		s.stock(t, name, 10)
		err := suite.Second(store.Reserve(t.Context(), order(name, name, 1)))
		assert.ErrorIs(t, err, inventory.ErrRejected, name)
		known := name == "twice" || name == "limit" || name == "failed" && s.Postgres() // its transaction is still there
		assert.Equal(t, !known, errors.Is(err, dblock.ErrOutcomeUnknown), "%s: %v", name, err)
		assert.ErrorIs(t, suite.Second(s.Lookup(t.Context(), name)), inventory.ErrNotFound, name)
		s.wantsBooks(t, name, 10, 0, 0)
	}
}

// AHookThatCommitsIsNoSuccess has the hook of a crowd commit before it writes its rows, if one
// order is among its own. An order with a nil error has its row, also if it was sent again.
func (mergeTests) AHookThatCommitsIsNoSuccess(t *testing.T, s *env) {
	store := s.hooked(t, func(ctx context.Context, exec func(string) error, granted []inventory.Reservation) error {
		if slices.ContainsFunc(granted, func(r inventory.Reservation) bool { return r.Buyer == "banned" }) {
			return exec("COMMIT AND CHAIN")
		}
		return ownRows(ctx, exec, granted)
	})
	s.stock(t, "sale", 1000)
	reqs, unknown := ordersFor(80, "sale"), 0
	for i := 10; i < len(reqs); i += 20 {
		reqs[i].Buyer = "banned"
	}
	for _, a := range crowd(t.Context(), store, reqs) {
		if a.err != nil {
			assert.ErrorIs(t, a.err, dblock.ErrOutcomeUnknown)
			unknown++
			continue
		}
		n := s.Count(t, "SELECT count(*) FROM own_order WHERE order_key = '"+a.req.Key+"'")
		assert.EqualValues(t, 1, n, a.req.Key)
	}
	assert.Positive(t, unknown)
}

// fails makes a hook's transaction fail unseen: on MySQL and MariaDB by a deadlock.
func (s *env) fails(t *testing.T, exec func(string) error) error {
	if s.Postgres() {
		_ = exec("SELECT 1 FROM nonsense")
		return nil
	}
	if err := exec("INSERT INTO own_order (order_key, n) VALUES ('mine', 0)"); err != nil {
		return err
	}
	tx, err := s.DB.DB.BeginTx(t.Context(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	theirs := "('theirs 0', 0)" // the transaction that has written more is not the victim
	for i := range 20 {
		theirs += fmt.Sprintf(", ('theirs %d', 0)", i+1)
	}
	if _, err := tx.ExecContext(t.Context(), "INSERT INTO own_order (order_key, n) VALUES "+theirs); err != nil {
		return err
	}
	waits := make(chan struct{})
	go func() {
		defer close(waits)
		_, _ = tx.ExecContext(t.Context(), "INSERT INTO own_order (order_key, n) VALUES ('mine', 0)")
	}()
	s.waitsForARow(t)
	_ = exec("INSERT INTO own_order (order_key, n) VALUES ('theirs 1', 0)")
	<-waits
	return nil
}
