package lease_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/memlease"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// What a Locker held is released if its process lives on with another one, too.

// TestCloseInAHandOver: what was handed to a caller goes back when the Locker is closed before the
// caller has it.
func TestCloseInAHandOver(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		p, closed := newProcess(s), make(chan error, 1)
		var l *lease.Locker
		l = p.locker(t, lease.Options{Clock: p.onceHandedOver(func() {
			go func() { closed <- l.Close(context.Background()) }()
			synctest.Wait()
		})})
		other := p.locker(t, lease.Options{})
		lock := acquire(t, l)
		ended := failing(t.Context(), l)
		release(t, lock)
		if err := <-ended; !errors.Is(err, dblock.ErrClosed) && !errors.Is(err, dblock.ErrOutcomeUnknown) {
			t.Errorf("told %v", err)
		}
		<-closed
		time.Sleep(2 * ttl)
		isFree(t, other)
	})
}

// TestCloseWhileAHandOverIsUnderWay is the same with the statement under way.
func TestCloseWhileAHandOverIsUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		p := newProcess(s)
		l, other := p.locker(t, lease.Options{}), p.locker(t, lease.Options{})
		lock := acquire(t, l)
		ended := failing(t.Context(), l)
		closed := make(chan error, 1)
		p.disturb(func(_ context.Context, call string, run func() error) error {
			if call == "HandOver" {
				go func() { closed <- l.Close(context.Background()) }()
				synctest.Wait()
			}
			return run()
		})
		release(t, lock)
		if err := <-ended; !errors.Is(err, dblock.ErrClosed) && !errors.Is(err, dblock.ErrOutcomeUnknown) {
			t.Errorf("told %v", err)
		}
		<-closed
		time.Sleep(2 * ttl)
		isFree(t, other)
	})
}

// TestCloseWhileAReleaseIsRepeated: a lease whose release failed is still released after Close.
func TestCloseWhileAReleaseIsRepeated(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		p := newProcess(s)
		l, other := p.locker(t, lease.Options{}), p.locker(t, lease.Options{})
		lock := acquire(t, l)
		began := time.Now()
		p.disturb(func(_ context.Context, call string, run func() error) error {
			if call == "Release" && time.Since(began) < time.Second {
				return &memlease.Failure{As: sqlerr.Busy, Err: errors.New("locked")}
			}
			return run()
		})
		release(t, lock)
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * ttl)
		isFree(t, other)
	})
}

// TestCloseWithLocksInUse: what callers have not released when ctx ends is free for other
// processes, although another Locker keeps the heartbeat. A later Release frees nothing of theirs.
func TestCloseWithLocksInUse(t *testing.T) {
	for name, opts := range map[string][]dblock.Option{
		"alone": nil, "shared": {dblock.WithShared()}, "permits": {dblock.WithPermits(2, 2)}, "without heartbeats": {dblock.WithoutRenewal(time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memlease.Server) {
				p := newProcess(s)
				l, other := p.locker(t, lease.Options{}), p.locker(t, lease.Options{})
				rival := newProcess(s).locker(t, lease.Options{})
				held, err := l.AcquireAll(t.Context(), []string{"a", "b"})
				if err != nil {
					t.Fatal(err)
				}
				lock, err := l.Acquire(t.Context(), key, opts...)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _, _ = lock.Release(context.Background()), held.Release(context.Background()) }) // after a failure
				ctx, end := context.WithCancel(t.Context())
				end()
				if err := l.Close(ctx); !errors.Is(err, context.Canceled) {
					t.Errorf("told %v", err)
				}
				time.Sleep(10 * ttl)
				isFree(t, other)
				mode := opts
				if name == "shared" {
					mode = nil
				}
				next, err := rival.TryAcquire(t.Context(), key, mode...)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = lock.Release(context.Background()), held.Release(context.Background())
				time.Sleep(ttl)
				fence, _ := next.Fence()
				now, err := other.List(t.Context())
				if err != nil || len(now) != 1 || now[0].Fence != fence {
					t.Errorf("held: %+v, %v", now, err)
				}
				release(t, next)
			})
		})
	}
}

// TestCloseWithADoubt: an unresolved operation outlives its Locker.
func TestCloseWithADoubt(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		p := newProcess(s)
		l, other := p.locker(t, lease.Options{}), p.locker(t, lease.Options{})
		p.disturb(func(_ context.Context, call string, run func() error) error {
			if call == "Acquire" {
				_ = run()
				return &memlease.Failure{As: sqlerr.Unresolved, Err: errors.New("lost")}
			}
			return run()
		})
		if _, err := l.Acquire(t.Context(), key); !errors.Is(err, dblock.ErrOutcomeUnknown) {
			t.Error(err)
		}
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * ttl)
		isFree(t, other)
	})
}

// TestLeaveFails: the last Locker that closes returns an error of package dblock for the database
// that was not there.
func TestLeaveFails(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		for is, want := range map[sqlerr.Class]error{
			sqlerr.Unresolved: dblock.ErrOutcomeUnknown, sqlerr.Unavailable: dblock.ErrUnavailable, sqlerr.Busy: dblock.ErrBusy, sqlerr.Retryable: dblock.ErrConflict,
		} {
			why := &memlease.Failure{As: is, Err: errors.New("no answer")}
			if err := leaves(t, newProcess(s), why); !errors.Is(err, want) || !errors.Is(err, why) {
				t.Errorf("%v: told %v, not %v", is, err, want)
			}
		}
		if err := leaves(t, newProcess(s), nil); err != nil {
			t.Error(err)
		}
	})
}

// leaves has a process that is a member leave, which fails as is said.
func leaves(t *testing.T, p *process, why error) error {
	t.Helper()
	if _, err := p.enter(t).Member.Current(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.disturb(func(_ context.Context, call string, run func() error) error {
		if call == "Deregister" && why != nil {
			return why
		}
		return run()
	})
	return p.shares.Leaver(0)(t.Context())
}

// TestALostThatBlocks: an Observer whose Lost never returns delays neither Close, nor a Release of
// a lock that was taken away.
func TestALostThatBlocks(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		goOn := make(chan struct{})
		defer close(goOn)
		o := lease.Options{Observer: dblock.Observer{Lost: func(string, time.Duration, dblock.Reason) { <-goOn }}}
		p, other := newProcess(s), newProcess(s).locker(t, lease.Options{})
		l := p.locker(t, o)
		taken := acquire(t, l)
		if err := other.ForceRelease(t.Context(), key, taken.Fences()[0].Token); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := taken.Release(t.Context()); !errors.Is(err, dblock.ErrLost) {
			t.Errorf("a release of a lock that was taken away: %v", err)
		}
		kept := acquire(t, l)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Close(ctx); err == nil {
			t.Error("Close did not say that a lock is in use")
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("Release and Close took %v", took)
		}
		release(t, acquire(t, other))
		if err := kept.Release(t.Context()); !errors.Is(err, dblock.ErrLost) {
			t.Errorf("a release after Close: %v", err)
		}
	})
}
