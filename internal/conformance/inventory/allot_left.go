package inventory

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/inventory"
)

// sellsWhatTheDeadHaveLeft kills a process that has an allotment: what is in it is for sale to everybody, and goes back once the
// process is known to be gone, and not before.
func sellsWhatTheDeadHaveLeft(t *testing.T, s *env) {
	s.keepsBooks(t)
	s.stock(t, "sale", 300)
	dead := s.startProcess(t, inventory.Options{Allotment: 100, Timeout: time.Minute})
	if r, err := dead.do(t.Context(), op{What: toReserve, Request: order("first", "sale", 1)}); err != nil || r.State != inventory.Sold {
		t.Fatal(r, err)
	}
	dead.kill()
	s.wantsAllotted(t, 200, 99)
	if r, err := s.Reserve(t.Context(), order("big", "sale", 250)); err != nil {
		t.Errorf("an order that finds enough in the stock and the allotment together: %+v, %v", r, err)
	}
	s.wantsAllotted(t, 0, 49)
	sweeper := s.openClosed(t, s.o)
	sweep := func() {
		if _, err := sweeper.Sweep(t.Context(), 10); err != nil {
			t.Error(err)
		}
	}
	sweep()
	s.wantsAllotted(t, 0, 49) // as far as anybody knows it is alive
	s.exec(t, "DELETE FROM dblock_member")
	sweep()
	s.wantsAllotted(t, 49, 0)
	for _, r := range ordersOf("rest", 49, "sale") {
		s.sells(t, r)
	}
	s.wants(t, op{What: toReserve, Request: order("late", "sale", 1)}, reply{State: inventory.Refused, SKU: "sale", Qty: 1, Kind: isSoldOut, Detail: "sale, left " + inWords(0)})
	s.balanced(t)
}

func (s *env) wantsAllotted(t *testing.T, available, allotted int64) {
	t.Helper()
	if b := s.balance(t, "sale"); b.Available != available || b.Allotted != allotted || b.Drift() != 0 {
		t.Errorf("%+v, want %d available and %d allotted", b, available, allotted)
	}
}

// seesWhatIsAllottedMeanwhile has those who wait for the stock find it moved to an allotment that was not there when they began to
// wait. Somebody's first allotment is made by hand, to be as slow as it takes.
func seesWhatIsAllottedMeanwhile(t *testing.T, s *env) {
	for name, call := range map[string]func(sku string) error{
		"a cart": func(sku string) error {
			_, err := s.ReserveAll(t.Context(), inventory.Cart{Key: sku, Lines: []inventory.Line{{SKU: sku, Qty: 7}, {SKU: "other", Qty: 1}}})
			return err
		},
		"an order with a limit": func(sku string) error {
			r := order(sku, sku, 7)
			r.Limit = 7
			_, err := s.Reserve(t.Context(), r)
			return err
		},
		"a write-off": func(sku string) error {
			_, err := s.Restock(t.Context(), inventory.Adjustment{ID: "off " + sku, SKU: sku, Delta: -7})
			return err
		},
		"a caller's transaction": func(sku string) error {
			return s.inCallersTx(t, func(tx *CallerTx) error {
				_, err := tx.Reserve(t.Context(), s.Store, order(sku, sku, 7))
				return err
			})
		},
	} {
		s.stock(t, name, 10)
		s.restock(t, "other "+name, "other", 1)
		tx, err := s.db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range []string{
			"UPDATE dblock_stock SET available = 0, epoch = epoch + 1 WHERE bucket = 0 AND sku = '" + sqlText(name) + "'",
			"INSERT INTO dblock_stock (sku, bucket, available) VALUES ('" + sqlText(name) + "', 1048576, 10)",
		} {
			if _, err := tx.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		end := make(chan error, 1)
		go func() { end <- call(name) }()
		s.waitsForARow(t)
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := <-end; err != nil {
			t.Errorf("%s finds 10 units moved, and says: %v", name, err)
		}
		if b := s.balance(t, name); b.Available+b.Allotted != 3 {
			t.Errorf("%s: %+v", name, b)
		}
	}
	s.sound(t)
}

// takesAnotherAllotment has a process lose its lease while it goes on, and somebody else get it: both sell on, and the one who has lost
// it takes another one.
func takesAnotherAllotment(t *testing.T, s *env) {
	s.keepsBooks(t)
	s.stock(t, "sale", 100_000)
	first, second := s.openClosed(t, inventory.Options{Allotment: 10}), s.openClosed(t, inventory.Options{Allotment: 10})
	sell := func(store *inventory.Store, name string) {
		if _, err := store.Reserve(t.Context(), order(name, "sale", 1)); err != nil {
			t.Error(err)
		}
	}
	sell(first, "first")
	s.exec(t, "DELETE FROM dblock_member")
	sell(second, "second")
	if n := s.count(t, "SELECT count(*) FROM dblock_stock WHERE bucket >= 1048576"); n != 1 {
		t.Errorf("the lease that was lost is not what the other one has: %d buckets", n)
	}
	n := 0
	suite.Until(t, "it takes another one", func() bool {
		n++
		sell(first, "on "+inWords(int64(n)))
		return s.count(t, "SELECT count(*) FROM dblock_stock WHERE bucket >= 1048576") > 1
	})
	s.balanced(t)
}

// closesWithoutAServer closes Stores that have allotments when the server answers nothing, and when it is gone: that ends within a
// bound, and says what it could not do; afterwards others give back what was left.
func closesWithoutAServer(t *testing.T, e Inventory) {
	s, server := e.envOfItsOwn(t)
	if server == nil {
		t.Log("the server is not ours to kill: nothing is shown")
		return
	}
	s.stock(t, "sale", 100)
	var stores []*inventory.Store
	var sold int64
	for i, name := range []string{"frozen", "killed"} {
		store, closePool, err := e.OpenOn(t.Context(), s.dsn, &faultconn.Dialer{}, inventory.Options{Allotment: 10, Timeout: frozenTimeout})
		if err != nil {
			t.Fatal(err)
		}
		defer closePool()
		suite.Until(t, "it has an allotment", func() bool { // on a busy machine the first try may take longer than so short a bound
			sold++
			if _, err := store.Reserve(t.Context(), order(name+inWords(sold), "sale", 1)); err != nil {
				t.Fatal(err)
			}
			return s.count(t, "SELECT count(*) FROM dblock_stock WHERE bucket >= 1048576") > int64(i)
		})
		stores = append(stores, store)
	}
	if err := server.Freeze(); err != nil {
		t.Fatal(err)
	}
	closesInTime(t, "frozen", stores[0])
	if err := errors.Join(server.Thaw(), server.Kill()); err != nil {
		t.Fatal(err)
	}
	closesInTime(t, "killed", stores[1])
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	sweeper, closePool, err := e.OpenOn(t.Context(), s.dsn, &faultconn.Dialer{}, inventory.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer closePool()
	s.exec(t, "DELETE FROM dblock_member")
	if _, err := sweeper.Sweep(t.Context(), 10); err != nil {
		t.Error(err)
	}
	s.wantsAllotted(t, 100-sold, 0)
	if err := sweeper.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func closesInTime(t *testing.T, name string, store *inventory.Store) {
	t.Helper()
	end := make(chan error, 1)
	go func() { end <- store.Close(context.Background()) }()
	select {
	case err := <-end:
		if err == nil {
			t.Errorf("%s: nothing was given back, and Close says nothing", name)
		}
	case <-time.After(time.Minute): // a few times Timeout, and what the lease takes to end
		t.Errorf("%s: Close hangs", name)
	}
}

// ofCallers runs a test with every form of a caller's transaction.
func ofCallers(test func(*testing.T, *env, begins)) func(*testing.T, Inventory) {
	return func(t *testing.T, e Inventory) {
		for name, begin := range e.Callers {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := e.env(t, patient(inventory.Merge))
				test(t, s, func(level sql.IsolationLevel) *CallerTx { return s.begin(t, begin, level) })
			})
		}
	}
}

func (s *env) begin(
	t *testing.T, begin func(context.Context, string, sql.IsolationLevel) (*CallerTx, error), level sql.IsolationLevel,
) *CallerTx {
	t.Helper()
	tx, err := begin(t.Context(), s.dsn, level)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tx.Close)
	return tx
}

// inCallersTx runs f in a transaction of some form.
func (s *env) inCallersTx(t *testing.T, f func(*CallerTx) error) error {
	for _, begin := range s.e.Callers {
		tx := s.begin(t, begin, sql.LevelReadCommitted)
		if err := f(tx); err != nil {
			return errors.Join(err, tx.Rollback(t.Context()))
		}
		return tx.Commit(t.Context())
	}
	return errors.New("there is no form of a caller's transaction")
}
