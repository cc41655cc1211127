package lease_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/memlease"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// errNoReply is what a call says whose answer is lost.
var errNoReply = &memlease.Failure{As: sqlerr.Unresolved, Err: errors.New("no reply")}

// TestReleaseBesideClose: a lock is released also if Close ends it at the same moment. The process
// lives on with another Locker.
func TestReleaseBesideClose(t *testing.T) {
	t.Parallel()
	for n := 0; n < 400 && !t.Failed(); n++ {
		synctest.Test(t, releaseBesideClose)
	}
}

func releaseBesideClose(t *testing.T) {
	p := newProcess(memlease.NewServer(clock.Real{}))
	l, other := p.locker(t, lease.Options{}), p.locker(t, lease.Options{})
	var locks []*dblock.Lock
	for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		lock, err := l.Acquire(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		locks = append(locks, lock)
	}
	var all sync.WaitGroup
	for _, lock := range locks {
		all.Go(func() { _ = lock.Release(context.Background()) })
	}
	all.Go(func() { _ = l.Close(context.Background()) })
	all.Wait()
	synctest.Wait()
	isFree(t, other)
}

// TestAnOutageLongerThanTheTTL: a lease that no member keeps is released after an outage in which
// the member was lost, whether its release or its acquisition has no answer.
func TestAnOutageLongerThanTheTTL(t *testing.T) {
	for _, unanswered := range []string{"Release", "Acquire"} {
		t.Run(unanswered, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memlease.Server) {
				p, other := newProcess(s), newProcess(s).locker(t, lease.Options{})
				l := p.locker(t, lease.Options{})
				var away atomic.Bool
				p.disturb(func(_ context.Context, call string, run func() error) error {
					if call == unanswered && !away.Swap(true) && call == "Acquire" {
						return errors.Join(errNoReply, run())
					}
					if away.Load() {
						return errNoReply
					}
					return run()
				})
				if lock, err := l.TryAcquire(t.Context(), key, dblock.WithoutRenewal(time.Hour)); err == nil {
					release(t, lock)
				}
				time.Sleep(3 * ttl)
				isRefused(t, other)
				away.Store(false)
				p.disturb(func(_ context.Context, _ string, run func() error) error { return run() })
				time.Sleep(2 * time.Second)
				isFree(t, other)
			})
		})
	}
}

// isRefused fails unless the key is held.
func isRefused(t *testing.T, l *lease.Locker) {
	t.Helper()
	if _, err := l.TryAcquire(t.Context(), key); !errors.Is(err, dblock.ErrNotAcquired) {
		t.Errorf("the key is not held: %v", err)
	}
}

// TestHeartbeatsReachAllLockers: each Locker of a pool and TTL learns of a late heartbeat, until it
// is closed.
func TestHeartbeatsReachAllLockers(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		p := newProcess(s)
		var late [2]atomic.Int64
		var logs [2]lines
		var lockers [2]*lease.Locker
		for i := range lockers {
			lockers[i] = p.locker(t, lease.Options{
				Observer: dblock.Observer{HeartbeatLate: func(time.Duration, error) { late[i].Add(1) }},
				Log:      slog.New(slog.NewTextHandler(&logs[i], nil)),
			})
		}
		lock := acquire(t, lockers[0])
		defer func() { _ = lock.Release(context.Background()) }()
		p.disturb(func(_ context.Context, call string, run func() error) error {
			if call == "Heartbeat" {
				return errNoReply
			}
			return run()
		})
		time.Sleep(ttl / 2)
		if err := lockers[1].Close(context.Background()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		first, second := late[0].Load(), late[1].Load()
		time.Sleep(ttl)
		synctest.Wait()
		if first == 0 || first != second || late[0].Load() == first || late[1].Load() != second {
			t.Errorf("late heartbeats: %d and %d, then %d and %d", first, second, late[0].Load(), late[1].Load())
		}
		for i := range logs {
			if logs[i].Load() == 0 {
				t.Errorf("log %d is empty", i)
			}
		}
	})
}

// lines counts what is written to a log.
type lines struct{ atomic.Int64 }

func (n *lines) Write(line []byte) (int, error) {
	n.Add(1)
	return len(line), nil
}

// TestASilentServer: whatever call the server does not answer, an acquisition returns at its
// deadline, and a release within the second that it waits for the server.
func TestASilentServer(t *testing.T) {
	for _, call := range []string{"Register", "Acquire", "HandOver", "OthersWait", "Evict", "Wait", "Readers", "AcquireShared", "Release"} {
		t.Run(call, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memlease.Server) {
				p := newProcess(s)
				p.silent = true
				l := p.locker(t, lease.Options{})
				if call != "Register" {
					held := acquire(t, l)
					defer func() { _ = held.Release(context.Background()) }()
				}
				crash(t, s, "of the dead")
				silent := make(chan struct{})
				defer close(silent)
				p.disturb(func(ctx context.Context, name string, run func() error) error {
					if name != call {
						return run()
					}
					select {
					case <-silent:
					case <-ctx.Done():
					}
					return errNoReply
				})
				for _, key := range []string{key, "free", "of the dead"} {
					for _, opts := range [][]dblock.Option{nil, {dblock.WithShared()}} {
						endsInTime(t, call, l, key, opts)
					}
				}
			})
		})
	}
}

// crash leaves a key with a member that has expired.
func crash(t *testing.T, s *memlease.Server, key string) {
	t.Helper()
	e, id := s.Open(), member.NewID()
	if err := e.Register(t.Context(), id, "", time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if got, err := e.Acquire(t.Context(), lease.AcquireBatch{By: lease.By{Member: id}, Requests: []lease.AcquireRequest{{Key: key, Handle: member.NewID()}}}); err != nil || got[0].Token == 0 {
		t.Fatal(got, err)
	}
	time.Sleep(2 * time.Millisecond)
}

func endsInTime(t *testing.T, call string, l *lease.Locker, key string, opts []dblock.Option) {
	t.Helper()
	for _, how := range []func(context.Context, string, ...dblock.Option) (*dblock.Lock, error){l.TryAcquire, l.Acquire} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		began := time.Now()
		lock, err := how(ctx, key, opts...)
		cancel()
		if took := time.Since(began); took > 110*time.Millisecond {
			t.Errorf("silent %s: an acquisition of %q took %v", call, key, took)
		}
		if err != nil {
			continue
		}
		began = time.Now()
		release(t, lock)
		if took := time.Since(began); took > 1100*time.Millisecond {
			t.Errorf("silent %s: a release of %q took %v", call, key, took)
		}
	}
}
