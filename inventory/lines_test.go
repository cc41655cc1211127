package inventory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// carts is a driver with carts that are held for so long.
type carts struct {
	driver.Driver
	left time.Duration

	mu      sync.Mutex
	lines   map[string]int // by key, of carts that are held
	longest int            // number of lines that a statement has changed, if it was for several carts
	lose    bool           // the reply to the next commit is lost
}

var errLost = errors.New("lost")

func (*carts) Failure(err error) driver.Failure {
	if errors.Is(err, errLost) {
		return driver.Failure{Class: sqlerr.Unresolved}
	}
	return driver.Failure{}
}

func (*carts) Caps() driver.Caps { return driver.Caps{} }

func (*carts) Allotted(context.Context) ([]driver.Units, error) { return nil, nil }

func (e *carts) Due(_ context.Context, _ []string, limit int) (due []driver.Due, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for key, n := range e.lines {
		if len(due) < limit {
			due = append(due, driver.Due{Key: key, Lines: n})
		}
	}
	return due, nil
}

func (e *carts) Move(_ context.Context, fn func(driver.MoveTx) error) error { return fn(e) }

func (e *carts) Reservations(_ context.Context, keys []string, _ bool) (map[string][]driver.Row, map[string]bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	recorded := make(map[string][]driver.Row)
	for _, key := range keys {
		for range e.lines[key] {
			recorded[key] = append(recorded[key], driver.Row{Key: key, SKU: "a", Qty: 1, State: int16(ReservationHeld), Left: e.left})
		}
	}
	return recorded, nil, nil
}

func (*carts) Returns(context.Context, driver.Moves, bool, bool) (map[driver.Quota]bool, map[string]bool, error) {
	return nil, map[string]bool{"a": true}, nil
}

func (e *carts) Write(_ context.Context, m driver.Moves) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	lines := 0
	for _, set := range m.Set {
		lines += e.lines[set.Key]
	}
	if len(m.Set) > 1 {
		e.longest = max(e.longest, lines)
	}
	for _, set := range m.Set {
		delete(e.lines, set.Key)
	}
	if e.lose {
		e.lose = false
		return errLost
	}
	return nil
}

// TestAStatementChangesFewLines: however many carts are confirmed or swept at once, a statement
// changes the lines of one, or no more than MaxBatch lines.
func TestAStatementChangesFewLines(t *testing.T) {
	t.Parallel()
	const n, most = 100, 50
	o, err := Options{MaxBatch: most}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	for _, lines := range []int{1, 20, 2 * most} {
		all := make(map[string]int)
		for i := range n {
			all[fmt.Sprint("cart", i)] = lines
		}
		for name, change := range map[string]func(s *Store) error{
			"swept": func(s *Store) error {
				swept, err := s.Sweep(t.Context(), n)
				if err == nil && swept != n {
					err = fmt.Errorf("%d of %d were swept", swept, n)
				}
				return err
			},
			"confirmed": func(s *Store) error {
				errs := make([]error, n)
				var wait sync.WaitGroup
				for i := range n {
					wait.Go(func() { _, errs[i] = s.Confirm(t.Context(), fmt.Sprint("cart", i)) })
				}
				wait.Wait()
				return errors.Join(errs...)
			},
		} {
			e := &carts{lines: maps.Clone(all)}
			if name == "confirmed" {
				e.left = time.Hour
			}
			s := newStore(e, o)
			if err := change(s); err != nil {
				t.Errorf("%d carts of %d lines are %s: %v", n, lines, name, err)
			}
			if e.longest > most {
				t.Errorf("%d carts of %d lines are %s by a statement for %d lines", n, lines, name, e.longest)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestUnitsOfALostReplyAreForSale: a commit gave units back and its reply was lost. The next
// attempt finds nothing left to do. What the Store remembered of the SKU is gone.
func TestUnitsOfALostReplyAreForSale(t *testing.T) {
	t.Parallel()
	o, err := Options{SoldOutTTL: 10 * time.Second}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	s := newStore(&carts{lines: map[string]int{"cart": 1}, lose: true}, o)
	now := time.Now()
	s.cache.noteSoldOut(s.cache.begin(), "a")
	if !isSoldOut(s.cache, "a", now) {
		t.Fatal("that it is sold out is not remembered")
	}
	if _, err := s.Sweep(t.Context(), 1); err != nil {
		t.Error(err)
	}
	if isSoldOut(s.cache, "a", now) {
		t.Error("the units that came back are refused as sold out")
	}
}

// queued is a driver whose SKU other transactions lock one after the other: only a change that
// waits for long enough gets its row.
type queued struct {
	carts
	needs time.Duration
	most  time.Duration // the longest wait
}

var errLocked = errors.New("locked")

func (*queued) Failure(err error) driver.Failure {
	if errors.Is(err, errLocked) {
		return driver.Failure{Class: sqlerr.Busy, Locked: true, Own: true}
	}
	return driver.Failure{}
}

func (e *queued) Move(ctx context.Context, fn func(driver.MoveTx) error) error {
	e.mu.Lock()
	e.most = max(e.most, driver.LockWaitOf(ctx))
	e.mu.Unlock()
	return fn(queuedTx{e, driver.LockWaitOf(ctx) >= e.needs})
}

type queuedTx struct {
	*queued
	served bool
}

func (t queuedTx) Returns(_ context.Context, _ driver.Moves, _, wait bool) (map[driver.Quota]bool, map[string]bool, error) {
	switch {
	case !wait:
		return nil, nil, nil
	case !t.served:
		return nil, nil, errLocked
	}
	return nil, map[string]bool{"a": true}, nil
}

// TestAChangeWaitsLongerEachTime: a change that does not get the row of its SKU waits longer the
// next time, so that transactions which wait for longer do not keep it out for ever.
func TestAChangeWaitsLongerEachTime(t *testing.T) {
	t.Parallel()
	o, err := Options{}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Store) (done bool, err error){
		"cancelled": func(s *Store) (bool, error) {
			_, err := s.Cancel(t.Context(), "cart")
			return true, err
		},
		"swept": func(s *Store) (bool, error) {
			n, err := s.Sweep(t.Context(), 1)
			return n == 1, err
		},
	} {
		e := &queued{carts: carts{lines: map[string]int{"cart": 1}}, needs: 16 * driver.LockWait}
		if name == "cancelled" {
			e.left = time.Hour
		}
		s := newStore(e, o)
		for done := false; !done; {
			if done, err = change(s); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			time.Sleep(time.Millisecond)
		}
		if e.most != e.needs {
			t.Errorf("%s: waited for %v at most, want %v", name, e.most, e.needs)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
