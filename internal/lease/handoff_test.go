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

// TestACrowdIsServedInLine: one statement serves each, and a release needs none of its own.
func TestACrowdIsServedInLine(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		p := newProcess(s)
		l := p.locker(t, lease.Options{})
		lock := acquire(t, l)
		p.called()
		var q queue
		var want []string
		for i := range crowd {
			want = append(want, strconv.Itoa(i))
			q.join(t, l, want[i], 10*time.Millisecond)
		}
		release(t, lock)
		q.all.Wait()
		if !slices.Equal(q.served, want) {
			t.Errorf("%d were served, or not in line", len(q.served))
		}
		calls := p.called()
		if asked := calls["Acquire"] + calls["HandOver"]; asked < crowd || asked > crowd*105/100 {
			t.Errorf("%d statements that acquire for %d callers", asked, crowd)
		}
		if calls["Release"] != 1 {
			t.Errorf("%d statements that release, want that of the last one", calls["Release"])
		}
		if turns := crowd / 100; calls["OthersWait"] > turns+1 { // 10 ms each, a turn is 1 s
			t.Errorf("asked %d times whether others wait, in %d turns", calls["OthersWait"], turns)
		}
		isFree(t, l)
	})
}

// TestOthersGetTheirTurn: a process hands over among its own for a second, and not for longer if
// others wait.
func TestOthersGetTheirTurn(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		a, b := newProcess(s).locker(t, lease.Options{}), newProcess(s).locker(t, lease.Options{})
		var q queue
		for _, name := range []string{"a1", "a2", "a3", "a4", "a5", "a6"} {
			q.join(t, a, name, 400*time.Millisecond)
		}
		for _, name := range []string{"b1", "b2", "b3", "b4"} {
			q.join(t, b, name, 400*time.Millisecond)
		}
		began := time.Now()
		q.all.Wait()
		want := []string{"a1", "a2", "a3", "b1", "b2", "b3", "a4", "a5", "a6", "b4"}
		if !slices.Equal(q.served, want) {
			t.Errorf("served %v, want %v", q.served, want)
		}
		if took := time.Since(began); took > 10*400*time.Millisecond+200*time.Millisecond {
			t.Errorf("it took %v: the key was free while they waited", took)
		}
	})
}

// TestNoOtherWaits: a process whose turn is over goes on if no other process waits.
func TestNoOtherWaits(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		p := newProcess(s)
		l := p.locker(t, lease.Options{})
		var q queue
		for i := range 10 {
			q.join(t, l, strconv.Itoa(i), 1500*time.Millisecond)
		}
		q.all.Wait()
		if calls := p.called(); calls["Release"] != 1 || calls["OthersWait"] != 9 {
			t.Errorf("asked %v", calls)
		}
	})
}

// failing starts a caller that queues, and returns how it ends.
func failing(ctx context.Context, l *lease.Locker) <-chan error {
	ended := make(chan error, 1)
	go func() {
		lock, err := l.Acquire(ctx, key)
		if lock != nil {
			err = errors.Join(errors.New("acquired"), lock.Release(ctx))
		}
		ended <- err
	}()
	synctest.Wait()
	return ended
}

// TestAWaitEndsWhileItIsHandedTo: a waiter that gave up while the statement was under way gets
// ErrOutcomeUnknown, and the lock goes on to the next waiter.
func TestAWaitEndsWhileItIsHandedTo(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		p := newProcess(s)
		l := p.locker(t, lease.Options{})
		lock := acquire(t, l)
		ctx, cancel := context.WithCancel(t.Context())
		ended := failing(ctx, l)
		var q queue
		q.join(t, l, "next", 0)
		p.disturb(func(_ context.Context, call string, run func() error) error {
			if call == "HandOver" {
				cancel()
				synctest.Wait()
				if err := <-ended; !errors.Is(err, dblock.ErrOutcomeUnknown) {
					t.Errorf("told %v", err)
				}
			}
			return run()
		})
		release(t, lock)
		q.all.Wait()
		if !slices.Equal(q.served, []string{"next"}) {
			t.Errorf("served %v", q.served)
		}
		isFree(t, l)
	})
}

// TestAWaitEndsAfterItWasHandedTo: the same after the waiter was granted the lock, and before it
// was notified.
func TestAWaitEndsAfterItWasHandedTo(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		var ended <-chan error
		ctx, cancel := context.WithCancel(t.Context())
		p := newProcess(s)
		l := p.locker(t, lease.Options{Clock: p.onceHandedOver(func() {
			cancel()
			if err := <-ended; !errors.Is(err, dblock.ErrOutcomeUnknown) {
				t.Errorf("told %v", err)
			}
		})})
		lock := acquire(t, l)
		ended = failing(ctx, l)
		var q queue
		q.join(t, l, "next", 0)
		release(t, lock)
		q.all.Wait()
		if !slices.Equal(q.served, []string{"next"}) {
			t.Errorf("served %v", q.served)
		}
		isFree(t, l)
	})
}

// TestAHandOverWithoutAnAnswer: whether it was carried out or not, the next one has the lock soon,
// and alone.
func TestAHandOverWithoutAnAnswer(t *testing.T) {
	for name, sent := range map[string]bool{"carried out": true, "not carried out": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memlease.Server) {
				p := newProcess(s)
				l := p.locker(t, lease.Options{Poll: time.Minute})
				lock := acquire(t, l)
				var q queue
				q.join(t, l, "next", time.Second)
				q.join(t, l, "the one after", time.Second)
				lost := false
				p.disturb(func(_ context.Context, call string, run func() error) error {
					if call != "HandOver" || lost {
						return run()
					}
					lost = true
					if sent {
						_ = run()
					}
					return &memlease.Failure{As: sqlerr.Unresolved, Err: errors.New("connection lost")}
				})
				began := time.Now()
				release(t, lock)
				q.all.Wait()
				if !slices.Equal(q.served, []string{"next", "the one after"}) {
					t.Errorf("served %v", q.served)
				}
				if took := time.Since(began); took > ttl/3+2*time.Second { // a heartbeat clears it up, or nothing has to
					t.Errorf("it took %v", took)
				}
				isFree(t, l)
				time.Sleep(2 * ttl) // unresolved operations are retried, and given up
				p.called()
				time.Sleep(2 * ttl)
				if calls := p.called(); calls["Release"] != 0 {
					t.Errorf("still in doubt: %v", calls)
				}
			})
		})
	}
}

// TestAHandOverThatFails: the lock is released, and the next one asks for itself.
func TestAHandOverThatFails(t *testing.T) {
	for _, is := range []sqlerr.Class{sqlerr.Unclassified, sqlerr.Retryable, sqlerr.Busy, sqlerr.Unavailable} {
		t.Run(strconv.Itoa(int(is)), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memlease.Server) {
				p := newProcess(s)
				l := p.locker(t, lease.Options{})
				lock := acquire(t, l)
				var q queue
				q.join(t, l, "next", 0)
				p.disturb(func(_ context.Context, call string, run func() error) error {
					if call == "HandOver" {
						return &memlease.Failure{As: is, Err: errors.New("no")}
					}
					return run()
				})
				release(t, lock)
				q.all.Wait()
				isFree(t, l)
			})
		})
	}
}
