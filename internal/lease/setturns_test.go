package lease_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/memlease"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// TestSetsAskOneAfterAnother: of many sets of a process that wait for a key one asks the database.
// They get it in the order in which they came. Those that give up keep no other one waiting.
func TestSetsAskOneAfterAnother(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		held := acquire(t, newProcess(s).locker(t, lease.Options{}))
		p := newProcess(s)
		l := p.locker(t, lease.Options{})
		const sets = 100
		var all sync.WaitGroup
		var served []int
		for i := range sets {
			all.Go(func() {
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if i%2 == 1 {
					ctx, cancel = context.WithTimeout(ctx, time.Second)
				}
				defer cancel()
				lock, err := l.AcquireAll(ctx, []string{"j", key})
				if errors.Is(err, context.DeadlineExceeded) && errors.As(err, new(*dblock.HeldError)) && i%2 == 1 {
					return
				}
				if err != nil {
					t.Errorf("set %d: %v", i, err)
					return
				}
				served = append(served, i)
				release(t, lock)
			})
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		if n := p.called()["AcquireAll"]; n > 2*60+sets/2 {
			t.Errorf("%d sets that waited for a minute asked %d times", sets, n)
		}
		release(t, held)
		all.Wait()
		if len(served) != sets/2 || !slices.IsSorted(served) {
			t.Errorf("the sets were served in the order %v", served)
		}
	})
}

// TestASetWaitsForHeldKeysOnly: a set that waits for one key keeps no other set from another one.
func TestASetWaitsForHeldKeysOnly(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		other, l := newProcess(s).locker(t, lease.Options{}), newProcess(s).locker(t, lease.Options{})
		both, err := other.AcquireAll(t.Context(), []string{"a", "b"})
		if err != nil {
			t.Fatal(err)
		}
		only, err := other.Acquire(t.Context(), "c")
		if err != nil {
			t.Fatal(err)
		}
		granted := make(chan string, 2)
		for _, keys := range [][]string{{"a", "c"}, {"a", "b"}} {
			go func() {
				lock, err := l.AcquireAll(t.Context(), keys)
				if err != nil {
					t.Errorf("%v: %v", keys, err)
					return
				}
				granted <- keys[1]
				release(t, lock)
			}()
			synctest.Wait()
		}
		release(t, both)
		if got := <-granted; got != "b" {
			t.Errorf("the first set that was granted waits for %q, which is held", got)
		}
		release(t, only)
		<-granted
	})
}

// TestACrowdOfSets: many callers acquire sets of new keys at once. The pool has few connections. No
// statement spends its bound in the pool, and all sets are granted.
func TestACrowdOfSets(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		p := newProcess(s)
		pool := make(chan struct{}, 2)
		late := 0
		p.disturb(func(ctx context.Context, call string, run func() error) error {
			if call != "AcquireAll" && call != "Make" {
				return run()
			}
			select {
			case pool <- struct{}{}:
			case <-ctx.Done():
				late++
				return ctx.Err()
			}
			defer func() { <-pool }()
			time.Sleep(ttl / 45)
			return run()
		})
		l := p.locker(t, lease.Options{})
		var all sync.WaitGroup
		for i := range 300 {
			all.Go(func() {
				lock, err := l.AcquireAll(t.Context(), []string{fmt.Sprint(i, "a"), fmt.Sprint(i, "b")})
				if err != nil {
					t.Errorf("set %d: %v", i, err)
					return
				}
				release(t, lock)
			})
		}
		all.Wait()
		if late > 0 {
			t.Errorf("%d statements were late", late)
		}
	})
}

// TestASetOutlivesALateStatement: a statement of a set that takes longer than its bound, and is
// carried out all the same, does not end the call. It asks again, and what was granted is released.
func TestASetOutlivesALateStatement(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		p := newProcess(s)
		asked := 0
		p.disturb(func(ctx context.Context, call string, run func() error) error {
			if call != "AcquireAll" {
				return run()
			}
			if asked++; asked > 1 {
				return run()
			}
			_ = run()
			<-ctx.Done()
			return &memlease.Failure{As: sqlerr.Unresolved, Err: ctx.Err()}
		})
		l := p.locker(t, lease.Options{})
		lock, err := l.AcquireAll(t.Context(), []string{"a", "b"})
		if err != nil {
			t.Fatalf("after %d statements: %v", asked, err)
		}
		release(t, lock)
		other := newProcess(s).locker(t, lease.Options{})
		if lock, err = other.TryAcquireAll(t.Context(), []string{"a", "b"}); err != nil {
			t.Fatalf("what was granted late is held: %v", err)
		}
		release(t, lock)
	})
}

// TestTheStatementOfASetOutlivesItsCaller: a call ends while the statement of its set is under way.
// The statement goes on, as an ended one costs its connection, and what it is granted is released
// as soon as it is known.
func TestTheStatementOfASetOutlivesItsCaller(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		p := newProcess(s)
		const takes = ttl / 100
		p.disturb(func(ctx context.Context, call string, run func() error) error {
			if call == "AcquireAll" {
				time.Sleep(takes)
				if ctx.Err() != nil {
					t.Errorf("a statement was ended with its caller: %v", ctx.Err())
				}
			}
			return run()
		})
		l, other := p.locker(t, lease.Options{}), newProcess(s).locker(t, lease.Options{})
		lock, err := l.AcquireAll(t.Context(), []string{"a", "b"}) // which makes their rows
		if err != nil {
			t.Fatal(err)
		}
		release(t, lock)
		ctx, cancel := context.WithTimeout(t.Context(), takes/2)
		defer cancel()
		if _, err := l.AcquireAll(ctx, []string{"a", "b"}); !errors.Is(err, dblock.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the call that ended returned %v", err)
		}
		time.Sleep(takes)
		if lock, err = other.TryAcquireAll(t.Context(), []string{"a", "b"}); err != nil {
			t.Fatalf("what was granted to the call that ended is held: %v", err)
		}
		release(t, lock)
	})
}
