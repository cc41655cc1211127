package inventory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/inventory"
)

// aHookIsRunAgain has the hooks of two Stores lock rows of the owner's crosswise: whoever is the victim is run again, and nobody is
// told of it.
func aHookIsRunAgain(t *testing.T, s *env) {
	var victims atomic.Int64
	crosswise := func(first, second string) Hook {
		return func(ctx context.Context, exec func(string) error, granted []inventory.Reservation) error {
			for _, row := range []string{first, second} {
				if err := exec("UPDATE own_order SET n = n + 1 WHERE order_key = '" + row + "'"); err != nil {
					victims.Add(1)
					return err
				}
			}
			return ownRows(ctx, exec, granted)
		}
	}
	stores := []*inventory.Store{
		s.hooked(t, &faultconn.Dialer{}, inventory.Options{Timeout: time.Minute}, crosswise("x", "y")),
		s.hooked(t, &faultconn.Dialer{}, inventory.Options{Timeout: time.Minute}, crosswise("y", "x")),
	}
	s.exec(t, "INSERT INTO own_order (order_key, n) VALUES ('x', 0), ('y', 0)")
	s.stock(t, "sale 0", 1000)
	s.stock(t, "sale 1", 1000)
	n := 0
	suite.Until(t, "two hooks wait for each other", func() bool {
		var both sync.WaitGroup
		for i, store := range stores {
			both.Go(func() {
				if _, err := store.Reserve(t.Context(), order(fmt.Sprintf("%d-%d", i, n), fmt.Sprintf("sale %d", i), 1)); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		n++
		return victims.Load() > 0 || n == 300
	})
	if victims.Load() == 0 {
		t.Error("no hook was ever a victim: this shows nothing")
	}
	s.exec(t, "DELETE FROM own_order WHERE order_key IN ('x', 'y')")
	s.wantsOwnRows(t)
}

// aHookThatKeepsItsErrorsIsFound has hooks return nil although their transaction has failed, or was ended: nobody is told that
// anything is sold.
func aHookThatKeepsItsErrorsIsFound(t *testing.T, s *env) {
	for name, spoil := range map[string]string{"it was ended": "ROLLBACK", "it has failed": ""} {
		store := s.hooked(t, &faultconn.Dialer{}, inventory.Options{Timeout: time.Minute}, func(ctx context.Context, exec func(string) error, granted []inventory.Reservation) error {
			if spoil != "" {
				return exec(spoil)
			}
			return s.deadlocks(ctx, t, exec)
		})
		s.stock(t, name, 10)
		_, err := store.Reserve(t.Context(), order(name, name, 1))
		if !errors.Is(err, inventory.ErrRejected) {
			t.Errorf("%s, and the caller is told %v", name, err)
		}
		if r, err := s.Lookup(t.Context(), name); !errors.Is(err, inventory.ErrNotFound) {
			t.Errorf("%s: recorded is %+v, %v", name, r, err)
		}
		if b := s.balance(t, name); b.Available != 10 || b.Drift() != 0 {
			t.Errorf("%s: %+v", name, b)
		}
	}
}

// deadlocks makes the hook's transaction the victim of a deadlock, and says nothing.
func (s *env) deadlocks(ctx context.Context, t *testing.T, exec func(string) error) error {
	if err := exec("INSERT INTO own_order (order_key, n) VALUES ('mine', 0)"); err != nil {
		return err
	}
	conn, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Rollback() }()
	for i := range 20 { // the one who has written more is not the victim
		if _, err := conn.ExecContext(ctx, fmt.Sprintf("INSERT INTO own_order (order_key, n) VALUES ('theirs %d', 0)", i)); err != nil {
			return err
		}
	}
	waits := make(chan struct{})
	go func() {
		defer close(waits)
		_, _ = conn.ExecContext(ctx, "INSERT INTO own_order (order_key, n) VALUES ('mine', 0)")
	}()
	s.waitsForARow(t)
	_ = exec("INSERT INTO own_order (order_key, n) VALUES ('theirs 1', 0)")
	_ = exec("SELECT 1 FROM nonsense") // on Postgres it may be the other one's
	<-waits
	return nil
}

// aHookCutAnywhere breaks the connection of an order with a hook at every call on the wire: there is never a row of the owner's
// without its order, or the other way round, and the same order sent again is there once.
func aHookCutAnywhere(t *testing.T, s *env) {
	s.stock(t, "sale", 100_000)
	for _, mode := range []faultconn.Mode{faultconn.CutBefore, faultconn.CutAfter} {
		struckOnce := false
		for k := 1; ; k++ {
			dialer := &faultconn.Dialer{}
			store := s.hooked(t, dialer, inventory.Options{Timeout: time.Minute}, ownRows)
			if _, err := store.Reserve(t.Context(), order(fmt.Sprintf("%v %d, to warm up", mode, k), "sale", 1)); err != nil {
				t.Fatal(err)
			}
			r := order(fmt.Sprintf("%v %d", mode, k), "sale", 1)
			dialer.Arm(k, mode, nil)
			_, err := store.Reserve(t.Context(), r)
			struck := dialer.Disarm()
			s.wantsOwnRows(t)
			if err != nil {
				t.Errorf("%s: %v", r.Key, err)
			}
			if _, err := store.Reserve(t.Context(), r); err != nil {
				t.Errorf("%s, again: %v", r.Key, err)
			}
			if err := store.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if struckOnce = struckOnce || struck; !struck || k == suite.CutPoints {
				break
			}
		}
		if !struckOnce {
			t.Errorf("%v: nothing was ever cut", mode)
		}
	}
	s.wantsOwnRows(t)
	s.exec(t, "INSERT INTO own_order (order_key, n) VALUES ('forged', 1)")
	if n := s.count(t, "SELECT count(*) FROM own_order o WHERE NOT EXISTS (SELECT 1 FROM dblock_reservation r WHERE r.reservation_key = o.order_key)"); n != 1 {
		t.Errorf("the control: a row of the owner's that is forged is found %d times", n)
	}
}
