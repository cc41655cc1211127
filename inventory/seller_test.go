package inventory

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/batch"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// hasHook is a driver with a hook, and a pool of 4 connections.
type hasHook struct{ driver.Driver }

func (hasHook) Caps() driver.Caps { return driver.Caps{Hooked: true, Connections: 4} }

// TestAllStatementsLeaveAConnection: whatever is called, one connection is left for what hooks
// read.
func TestAllStatementsLeaveAConnection(t *testing.T) {
	t.Parallel()
	r := newRetrier(hasHook{}, time.Minute)
	var now, most atomic.Int64
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			err := r.do(t.Context(), attempt{}, func(context.Context, attempt) error {
				n := now.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				time.Sleep(time.Millisecond)
				now.Add(-1)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if most.Load() > 3 {
		t.Errorf("%d statements at once", most.Load())
	}
}

// TestAHookReadsByItsOwnStore: statements with hooks have all slots, and each hook reads by its own
// Store.
func TestAHookReadsByItsOwnStore(t *testing.T) {
	t.Parallel()
	r := newRetrier(hasHook{}, time.Minute)
	var all, inHooks sync.WaitGroup
	inHooks.Add(3)
	for range 3 {
		all.Go(func() {
			err := r.do(t.Context(), attempt{}, func(ctx context.Context, _ attempt) error {
				inHooks.Done()
				inHooks.Wait()
				return r.do(ctx, attempt{}, func(context.Context, attempt) error { return nil })
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// TestHooksLeaveAConnection: however many connections there may be, statements with hooks leave one
// of them for what hooks read by the host's pool. Without a hook they may have all.
func TestHooksLeaveAConnection(t *testing.T) {
	t.Parallel()
	for n := 2; n <= 100; n++ {
		hooked := &seller{caps: driver.Caps{Hooked: true, Connections: n}}
		if used := hooked.inFlight(mergedInFlight) + hooked.waiters(); used >= n {
			t.Errorf("%d of %d connections may be in use by statements with hooks", used, n)
		}
		if without := (&seller{caps: driver.Caps{Connections: n}}).inFlight(mergedInFlight); without != mergedInFlight {
			t.Errorf("%d statements without hooks at once with %d connections, want %d", without, n, mergedInFlight)
		}
	}
}

// overAt is a context that ends at a time, which its channel does not say yet.
type overAt struct {
	context.Context
	end time.Time
}

func (overAt) Done() <-chan struct{} { return nil }

func (c overAt) Err() error {
	if time.Now().Before(c.end) {
		return nil
	}
	return context.DeadlineExceeded
}

// TestACallThatLeavesItsQueueLateSaysWhy: a process was stopped for a while. Its call was not sent
// in time, and the context of the call has ended, too. The error is the one of the context.
func TestACallThatLeavesItsQueueLateSaysWhy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, err := Options{Direct: true}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		free := make(chan struct{})
		queue := batch.Options[order, outcome]{
			Key: func(o order) string { return o.SKU },
			Run: func(_ context.Context, orders []order, _ bool) ([]result, error) {
				<-free
				return make([]result, len(orders)), nil
			},
		}
		s := &seller{o: o, cache: newCache(time.Minute), direct: batch.New(queue), sales: batch.New(queue)}
		var first sync.WaitGroup
		first.Go(func() { _, _ = s.decide(t.Context(), order{Request: req("first", "sku", 1)}) })
		synctest.Wait()
		late := overAt{t.Context(), time.Now().Add(o.Timeout / directPatience)}
		if _, err := s.decide(late, order{Request: req("late", "sku", 1)}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the error of the context", err)
		}
		close(free)
		first.Wait()
	})
}
