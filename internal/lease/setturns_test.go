package lease_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/memlease"
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
