package inventory

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/inventory"
)

// ownRows is a hook that writes a row of its owner's for each order.
func ownRows(_ context.Context, exec func(string) error, granted []inventory.Reservation) error {
	values := make([]string, len(granted))
	for i, r := range granted {
		values[i] = fmt.Sprintf("('%s', %d)", sqlText(r.Key), max(1, len(r.Lines)))
	}
	return exec("INSERT INTO own_order (order_key, n) VALUES " + strings.Join(values, ", "))
}

// hooked makes the table of the owner's, and a Store with a hook.
func (s *env) hooked(t *testing.T, dialer *faultconn.Dialer, o inventory.Options, hook Hook) *inventory.Store {
	t.Helper()
	return s.hookedOn(t, s.dsn, dialer, o, hook)
}

// hookedOn is hooked with a DSN of its own.
func (s *env) hookedOn(t *testing.T, dsn string, dialer *faultconn.Dialer, o inventory.Options, hook Hook) *inventory.Store {
	t.Helper()
	s.exec(t, "CREATE TABLE IF NOT EXISTS own_order (order_key varchar(200) NOT NULL PRIMARY KEY, n int NOT NULL)")
	store, closePool, err := s.e.OpenHooked(t.Context(), dsn, dialer, o, hook)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closePool)
	return store
}

// wantsOwnRows fails where an order has no row of the owner's, or the other way round.
func (s *env) wantsOwnRows(t *testing.T) {
	t.Helper()
	for _, fault := range s.ownRowsAmiss(t, "") {
		t.Error(fault)
	}
	s.sound(t)
}

// ownRowsAmiss is where the rows of the owner's and the orders whose keys begin so differ.
func (s *env) ownRowsAmiss(t *testing.T, prefix string) (faults []string) {
	t.Helper()
	for what, query := range map[string]string{
		"orders without a row of the owner's": `SELECT count(*) FROM dblock_reservation r WHERE r.state IN (1, 2) AND r.line = 0
			AND r.reservation_key LIKE '%s%%' AND NOT EXISTS (SELECT 1 FROM own_order o WHERE o.order_key = r.reservation_key)`,
		"rows of the owner's without an order": `SELECT count(*) FROM own_order o WHERE o.order_key LIKE '%s%%'
			AND NOT EXISTS (SELECT 1 FROM dblock_reservation r WHERE r.reservation_key = o.order_key AND r.state IN (1, 2))`,
	} {
		if n := s.count(t, fmt.Sprintf(query, prefix)); n != 0 {
			faults = append(faults, fmt.Sprintf("%d %s", n, what))
		}
	}
	return faults
}

// writesTheOwnersRows sells orders and carts of every kind with a hook, which gets each of them once, whole, and as it is sold.
func writesTheOwnersRows(t *testing.T, s *env) {
	s.keepsBooks(t)
	var mu sync.Mutex
	calls := map[string][]inventory.Reservation{}
	store := s.hooked(t, &faultconn.Dialer{}, inventory.Options{Timeout: time.Minute}, func(ctx context.Context, exec func(string) error, granted []inventory.Reservation) error {
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
	if _, err := store.ReserveAll(t.Context(), cart); err != nil {
		t.Error(err)
	}
	hold := held("held", "sale")
	hold.Limit = 5
	if _, err := store.Reserve(t.Context(), hold); err != nil {
		t.Error(err)
	}
	s.sells(t, order("sold without the hook", "sale", 1))
	reqs := append(append(ordersFor(97, "sale"), ordersOf("late", 40, "sale")...), order("sold without the hook", "sale", 1))
	sold := map[string]bool{}
	for _, a := range append(crowd(t.Context(), store, reqs), crowd(t.Context(), store, reqs)...) {
		switch {
		case a.err == nil:
			sold[a.req.Key] = true
		case !errors.Is(a.err, inventory.ErrSoldOut):
			t.Errorf("%s: %v", a.req.Key, a.err)
		}
	}
	if len(sold) != 98 {
		t.Errorf("%d were sold, want 98", len(sold))
	}
	if r, err := store.ReserveAll(t.Context(), cart); err != nil || !r.Replayed {
		t.Errorf("the cart again: %+v, %v", r, err)
	}
	want := inventory.Reservation{Key: "cart", Buyer: "ann", Lines: lines, State: inventory.Sold}
	if diff := cmp.Diff([]inventory.Reservation{want}, calls["cart"]); diff != "" {
		t.Errorf("the cart that the hook got (-want +got):\n%s", diff)
	}
	if got := calls["held"]; len(got) != 1 || got[0].State != inventory.Held || time.Until(got[0].ExpiresAt) < time.Minute {
		t.Errorf("what is held, as the hook got it: %+v", got)
	}
	for key := range calls {
		if strings.HasPrefix(key, "late") && !sold[key] && len(calls[key]) != 0 {
			t.Errorf("%s was refused, and passed to the hook", key)
		}
	}
	if len(calls["sold without the hook"]) != 0 {
		t.Error("what was recorded before was passed to the hook")
	}
	s.exec(t, "INSERT INTO own_order (order_key, n) VALUES ('sold without the hook', 1)")
	s.wantsOwnRows(t)
	s.balanced(t)
}

// aHookFailsForOneOrder has a hook fail for some orders of a crowd, in every way: those are refused alone, and the reason is told.
func aHookFailsForOneOrder(t *testing.T, s *env) {
	store := s.hooked(t, &faultconn.Dialer{}, inventory.Options{Timeout: time.Minute}, failsForSome)
	s.exec(t, "INSERT INTO own_order (order_key, n) VALUES ('order-50', 1)")
	s.stock(t, "sale", 1000)
	why := map[string]string{
		"order-10": "no such customer", "order-20": "out of memory, says the hook", "order-30": "null", "order-40": "nonsense", "order-50": "uplicate", "order-60": "HostError",
		"order-70": "runtime.Goexit",
	}
	for _, a := range crowd(t.Context(), store, ordersFor(200, "sale")) {
		want := why[a.req.Key]
		switch {
		case want == "" && a.err != nil:
			t.Errorf("%s failed for another's sake: %v", a.req.Key, a.err)
		case want != "" && (!errors.Is(a.err, inventory.ErrRejected) || !strings.Contains(a.err.Error(), want)):
			t.Errorf("%s: got %v, want ErrRejected and %q", a.req.Key, a.err, want)
		}
	}
	for key, want := range why { // alone, on the caller's goroutine
		if _, err := store.Reserve(t.Context(), order(key, "sale", 1)); !errors.Is(err, inventory.ErrRejected) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s alone: %v", key, err)
		}
	}
	if _, err := store.Reserve(t.Context(), order("after", "sale", 1)); err != nil {
		t.Errorf("after all that: %v", err)
	}
	if err := store.Close(t.Context()); err != nil {
		t.Error(err)
	}
	s.exec(t, "DELETE FROM own_order WHERE order_key = 'order-50'")
	if b := s.balance(t, "sale"); b.Sold != 194 {
		t.Errorf("%+v", b)
	}
	s.wantsOwnRows(t)
}

// failsForSome is ownRows for all but a few.
func failsForSome(ctx context.Context, exec func(string) error, granted []inventory.Reservation) error {
	if err := ownRows(ctx, exec, granted); err != nil {
		return err
	}
	for _, r := range granted {
		switch r.Key {
		case "order-10":
			return errors.New("no such customer")
		case "order-20":
			panic("out of memory, says the hook")
		case "order-60":
			return suite.NoHostError
		case "order-70":
			runtime.Goexit()
		case "order-30":
			return exec("INSERT INTO own_order (order_key, n) VALUES ('order-30, too', NULL)")
		case "order-40":
			return exec("INSERT INTO nonsense (order_key) VALUES ('order-40')")
		}
	}
	return nil
}
