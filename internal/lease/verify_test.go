package lease_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/memlease"
)

// TestACrowdThatIsGoneIsAskedForOnce: a process that has lost many locks asks once whether its
// member is gone.
func TestACrowdThatIsGoneIsAskedForOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		p := newProcess(s)
		l := p.locker(t, lease.Options{})
		var locks []*dblock.Lock
		for _, key := range []string{"a", "b", "c"} {
			lock, err := l.Acquire(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = lock.Release(context.Background()) }()
			locks = append(locks, lock)
			f, _ := lock.Fence()
			s.Admin().Free(f)
		}
		p.called()
		time.Sleep(ttl)
		synctest.Wait()
		for _, lock := range locks {
			var lost *dblock.LostError
			if cause := context.Cause(lock.Context()); !errors.As(cause, &lost) || lost.Reason != dblock.ReasonStolen {
				t.Errorf("%q ended by %v", lock.Key(), cause)
			}
		}
		if n := p.called()["Evict"]; n != 1 {
			t.Errorf("asked %d times", n)
		}
	})
}

// TestAFairGrantOfADeadMember: a call whose member ended before it saw its grant waits with a new
// ticket.
func TestAFairGrantOfADeadMember(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		p := newProcess(s)
		l, other := p.locker(t, lease.Options{Fair: true}), newProcess(s).locker(t, lease.Options{Fair: true})
		first := acquire(t, other)
		got := make(chan *dblock.Lock)
		go func() {
			lock, err := l.Acquire(t.Context(), key)
			if err != nil {
				t.Error(err)
			}
			got <- lock
		}()
		synctest.Wait()
		var granted, over atomic.Bool
		p.disturb(func(_ context.Context, call string, run func() error) error {
			if over.Load() {
				return run()
			}
			switch {
			case call == "Heartbeat":
				return errNoReply
			case call == "ReadTicket" && granted.Load():
				err := run()
				time.Sleep(ttl) // its answer comes when the member has ended
				over.Store(true)
				return err
			}
			return run()
		})
		granted.Store(true)
		release(t, first)
		lock := <-got
		if lock == nil {
			return
		}
		if lock.Context().Err() != nil {
			t.Errorf("granted a lock that had ended: %v", context.Cause(lock.Context()))
		}
		release(t, lock)
	})
}

// TestACloseThatIsCutShortLeavesNoListener: a closed Locker learns of no late heartbeats, though a
// lock of its is in use.
func TestACloseThatIsCutShortLeavesNoListener(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		var late atomic.Int64
		p := newProcess(s)
		l := p.locker(t, lease.Options{Observer: dblock.Observer{HeartbeatLate: func(time.Duration, error) { late.Add(1) }}})
		p.locker(t, lease.Options{}) // the member lives on
		lock := acquire(t, l)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.Close(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("closed with %v", err)
		}
		p.disturb(func(_ context.Context, call string, run func() error) error {
			if call == "Heartbeat" {
				return errNoReply
			}
			return run()
		})
		time.Sleep(ttl)
		if n := late.Load(); n > 0 {
			t.Errorf("told of %d late heartbeats", n)
		}
		p.disturb(func(_ context.Context, _ string, run func() error) error { return run() })
		_ = lock.Release(t.Context())
	})
}
