package lease_test

import (
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/memlease"
)

// TestWhatEachLockCosts counts the statements of a single caller without contention. Each call is
// one statement, but for InsertSemaphore, which is two. Tests on databases count what a key costs
// that has no row yet.
func TestWhatEachLockCosts(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		p := newProcess(s)
		l, fair := p.locker(t, lease.Options{}), p.locker(t, lease.Options{Fair: true})
		shared, permits := dblock.WithShared(), dblock.WithPermits(2, 3)
		one := func(l *lease.Locker, key string, opts ...dblock.Option) func() (*dblock.Lock, error) {
			return func() (*dblock.Lock, error) { return l.Acquire(t.Context(), key, opts...) }
		}
		all := func() (*dblock.Lock, error) { return l.AcquireAll(t.Context(), []string{"a", "b", "c"}) }
		release(t, acquire(t, l)) // the process has joined
		p.called()
		for _, step := range []struct {
			name    string
			acquire func() (*dblock.Lock, error)
			want    map[string]int
		}{
			{"a reader", one(l, "k1", shared), map[string]int{"AcquireShared": 1, "Release": 1}},
			{"a writer after readers", one(l, "k1"), map[string]int{"Acquire": 2, "Readers": 1, "HandOver": 1, "Release": 1}},
			{"a writer after a writer", one(l, "k1"), map[string]int{"Acquire": 1, "Release": 1}},
			{"the first permits", one(l, "k1", permits), map[string]int{"AcquirePermits": 2, "InsertSemaphore": 1, "Release": 1}},
			{"permits", one(l, "k1", permits), map[string]int{"AcquirePermits": 1, "Release": 1}},
			{"a set", all, map[string]int{"AcquireAll": 1, "Release": 1}},
			{"a reader of one of them", one(l, "b", shared), map[string]int{"AcquireShared": 1, "Release": 1}},
			{"the set again", all, map[string]int{"AcquireAll": 2, "Acquire": 2, "Readers": 2, "HandOver": 1, "Release": 2}},
			{"in turn", one(fair, "k1"), map[string]int{"Acquire": 1, "HandOff": 1}},
		} {
			lock, err := step.acquire()
			if err != nil {
				t.Fatalf("%s: %v", step.name, err)
			}
			release(t, lock)
			calls := p.called()
			delete(calls, "Listen") // once a process, and some time
			if !maps.Equal(calls, step.want) {
				t.Errorf("%s: %v, want %v", step.name, calls, step.want)
			}
		}
		synctest.Wait()
		p.called()
		_, err := l.Acquire(t.Context(), "k1", dblock.WithPermits(1, 4))
		if calls := p.called(); !errors.Is(err, dblock.ErrLimit) || !maps.Equal(calls, map[string]int{"AcquirePermits": 1}) {
			t.Errorf("another limit: %v, %v", err, calls)
		}
	})
}

// TestAWaitInTurnCostsFewStatements: one that finds the key held, one for the ticket, one that
// looks at once, and one when it is served.
func TestAWaitInTurnCostsFewStatements(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		fair := lease.Options{Fair: true, Poll: time.Minute}
		waits := newProcess(s)
		a, b := newProcess(s).locker(t, fair), waits.locker(t, fair)
		release(t, acquire(t, b)) // it has joined
		lock := acquire(t, a)
		synctest.Wait()
		waits.called()
		var q queue
		q.join(t, b, "b", 0)
		release(t, lock)
		q.all.Wait()
		calls := waits.called()
		delete(calls, "Listen")
		if want := map[string]int{"Acquire": 1, "Enqueue": 1, "ReadTicket": 2, "HandOff": 1}; !maps.Equal(calls, want) {
			t.Errorf("%v, want %v", calls, want)
		}
	})
}
