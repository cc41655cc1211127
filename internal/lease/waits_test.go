package lease_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/memlease"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// TestLockersOfOneProcessShareAWait: the server knows of it once, and one that ends leaves the
// other's alone.
func TestLockersOfOneProcessShareAWait(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		o := lease.Options{Poll: time.Minute}
		other, p := newProcess(s).locker(t, o), newProcess(s)
		one, two := p.locker(t, o), p.locker(t, o)
		lock := acquire(t, other)
		var q queue
		q.join(t, one, "one", time.Second)
		q.join(t, two, "two", time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp := failing(ctx, two)
		if members, _, waiters := s.Admin().Rows(); members != 2 || waiters != 1 {
			t.Errorf("%d members, of which %d wait", members, waiters)
		}
		cancel()
		if err := <-gaveUp; !errors.Is(err, dblock.ErrNotAcquired) || !errors.Is(err, context.Canceled) {
			t.Errorf("told %v", err)
		}
		began := time.Now()
		release(t, lock)
		q.all.Wait()
		if took := time.Since(began); len(q.served) != 2 || took > 3*time.Second { // they are notified, long before a poll
			t.Errorf("served %v after %v", q.served, took)
		}
		synctest.Wait()
		if _, _, waiters := s.Admin().Rows(); waiters != 0 {
			t.Error("the server still takes it that the process waits")
		}
		isFree(t, one)
	})
}

// TestLockersOfOneProcessTakeTurns: a Locker gives way to another one of its process, too.
func TestLockersOfOneProcessTakeTurns(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		p := newProcess(s)
		one, two := p.locker(t, lease.Options{}), p.locker(t, lease.Options{})
		var q queue
		for _, name := range []string{"1a", "1b", "1c", "1d"} {
			q.join(t, one, name, 600*time.Millisecond)
		}
		q.join(t, two, "2a", 600*time.Millisecond)
		q.all.Wait()
		if want := []string{"1a", "1b", "2a", "1c", "1d"}; !slices.Equal(q.served, want) {
			t.Errorf("served %v, want %v", q.served, want)
		}
	})
}

// TestAWaitOutlastsAMember: a waiter whose own process is taken for dead waits on, and is notified.
func TestAWaitOutlastsAMember(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		o := lease.Options{Poll: time.Minute}
		lock := acquire(t, newProcess(s).locker(t, o))
		p := newProcess(s)
		l := p.locker(t, o)
		var q queue
		q.join(t, l, "who waits", 0)
		began := time.Now()
		s.Admin().DeleteMembers() // and the holder's as well
		q.all.Wait()
		if took := time.Since(began); took > ttl/3+time.Second {
			t.Errorf("served after %v", took)
		}
		_ = lock.Release(t.Context()) // it may or may not know of it
	})
}

// TestWhatIsHeldEndsWithItsProcess: a waiter gets the key when the holder's time is up, without a
// poll.
func TestWhatIsHeldEndsWithItsProcess(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		dead, l := newProcess(s), newProcess(s).locker(t, lease.Options{Poll: time.Minute})
		lock := acquire(t, dead.locker(t, lease.Options{}))
		dead.disturb(func(_ context.Context, call string, run func() error) error {
			if call == "Heartbeat" {
				return &memlease.Failure{As: sqlerr.Unavailable, Err: errors.New("no route")}
			}
			return run()
		})
		began := time.Now()
		next := acquire(t, l)
		if took := time.Since(began); took < ttl || took > ttl+100*time.Millisecond {
			t.Errorf("taken over after %v of a TTL of %v", took, ttl)
		}
		var lost *dblock.LostError
		if !errors.As(context.Cause(lock.Context()), &lost) || lost.Reason != dblock.ReasonExpired {
			t.Errorf("the dead one's lock: %v", context.Cause(lock.Context()))
		}
		before, _ := lock.Fence()
		if f, _ := next.Fence(); f.Token <= before.Token {
			t.Errorf("token %d after %d", f.Token, before.Token)
		}
		_ = lock.Release(t.Context())
		release(t, next)
	})
}

// TestKeysLikeNotices has calls wait for keys that begin like the notice of a ticket's grant. Their
// release wakes them.
func TestKeysLikeNotices(t *testing.T) {
	for _, key := range []string{lease.TicketPrefix, lease.TicketPrefix + "k", lease.TicketPrefix + "00000000000000000000000000000000"} {
		t.Run(strconv.Quote(key), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memlease.Server) {
				o := lease.Options{Poll: time.Minute}
				holder, waiter := newProcess(s).locker(t, o), newProcess(s).locker(t, o)
				lock, err := holder.Acquire(t.Context(), key)
				if err != nil {
					t.Fatal(err)
				}
				var released time.Time
				time.AfterFunc(10*time.Minute, func() {
					released = time.Now()
					release(t, lock)
				})
				got, err := waiter.Acquire(t.Context(), key)
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(released); took > time.Second {
					t.Errorf("%q was granted %v after its release", key, took)
				}
				release(t, got)
			})
		})
	}
}
