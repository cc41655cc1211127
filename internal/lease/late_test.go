package lease_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/memlease"
	"github.com/dblock-go/dblock/internal/root"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// leaping is a clock whose timers are late: time has passed, as in a process that was stopped,
// before any of them fires.
type leaping struct {
	clock.Real
	ahead atomic.Int64
}

func (c *leaping) Now() time.Time { return c.Real.Now().Add(time.Duration(c.ahead.Load())) }

// locker makes a Locker on the clock, which ends with the test.
func (c *leaping) locker(t *testing.T, s *memlease.Server) *lease.Locker {
	t.Helper()
	m, err := member.Options{TTL: ttl, Clock: c}.WithDefaults("Options")
	if err != nil {
		t.Fatal(err)
	}
	o, err := lease.Options{Clock: c}.WithDefaults("Options", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var shares lease.Shares[int, *memlease.Driver]
	share, err := shares.Open(0, m, func() (*memlease.Driver, lease.Backend, error) { d := s.Open(); return d, d.Backend(), nil })
	if err != nil {
		t.Fatal(err)
	}
	l, leave := lease.New(share, o), shares.Leaver(0)
	t.Cleanup(func() {
		if err := errors.Join(l.Close(context.Background()), leave(context.Background())); err != nil {
			t.Error(err)
		}
	})
	return l
}

// TestALockWhoseTimersAreLate: the first call of a process that was stopped past the end of its
// lock finds it lost.
func TestALockWhoseTimersAreLate(t *testing.T) {
	t.Parallel()
	modes := map[string]struct {
		opts []dblock.Option
		set  bool
		why  dblock.Reason
	}{
		"exclusive": {why: dblock.ReasonExpired},
		"shared":    {opts: []dblock.Option{dblock.WithShared()}, why: dblock.ReasonExpired},
		"permits":   {opts: []dblock.Option{dblock.WithPermits(1, 2)}, why: dblock.ReasonExpired},
		"set":       {set: true, why: dblock.ReasonExpired},
		"capped":    {opts: []dblock.Option{dblock.WithMaxHold(ttl / 2)}, why: dblock.ReasonTimeUp},
		"detached":  {opts: []dblock.Option{dblock.WithoutRenewal(ttl)}, why: dblock.ReasonTimeUp},
	}
	calls := map[string]func(context.Context, *dblock.Lock) error{
		"Release":  func(ctx context.Context, lock *dblock.Lock) error { return lock.Release(ctx) },
		"ExpireIn": func(ctx context.Context, lock *dblock.Lock) error { return lock.ExpireIn(ctx, time.Hour) },
		"RunUnder": func(ctx context.Context, lock *dblock.Lock) error {
			return root.RunUnder(ctx, lock, func(context.Context) error { return nil })
		},
	}
	for mode, m := range modes {
		for name, call := range calls {
			t.Run(mode+"/"+name, func(t *testing.T) {
				bubble(t, func(t *testing.T, s *memlease.Server) {
					var c leaping
					l := c.locker(t, s)
					get := func() (*dblock.Lock, error) { return l.Acquire(t.Context(), key, m.opts...) }
					if m.set {
						get = func() (*dblock.Lock, error) { return l.AcquireAll(t.Context(), []string{"a", "b"}) }
					}
					lock, err := get()
					if err != nil {
						t.Fatal(err)
					}
					until := lock.ValidUntil().Sub(c.Now())
					c.ahead.Add(int64(until - 1))
					if err := root.RunUnder(t.Context(), lock, func(context.Context) error { return nil }); err != nil {
						t.Errorf("before its end: %v", err)
					}
					c.ahead.Add(1)
					var lost *dblock.LostError
					if err := call(t.Context(), lock); !errors.As(err, &lost) || lost.Reason != m.why {
						t.Errorf("%v after its end, want: %s", err, m.why)
					}
					if err := lock.Release(t.Context()); !errors.Is(err, dblock.ErrLost) {
						t.Errorf("released with %v", err)
					}
					c.ahead.Store(0)
				})
			})
		}
	}
}

// TestDoWhoseTimersAreLate: Do says that its lock was lost.
func TestDoWhoseTimersAreLate(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		var c leaping
		err := dblock.Do(t.Context(), c.locker(t, s), key, func(context.Context, *dblock.Lock) error {
			c.ahead.Store(int64(ttl))
			return nil
		})
		if !errors.Is(err, dblock.ErrLost) {
			t.Errorf("told %v", err)
		}
		c.ahead.Store(0)
	})
}

// TestAReleaseWithoutAnAnswerIsNoLoss: the second attempt finds nothing, as the first one has
// released it.
func TestAReleaseWithoutAnAnswerIsNoLoss(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		p, failed := newProcess(s), false
		lock := acquire(t, p.locker(t, lease.Options{}))
		p.disturb(func(_ context.Context, call string, run func() error) error {
			err := run()
			if call == "Release" && !failed {
				failed = true
				return errNoReply
			}
			return err
		})
		release(t, lock)
		if n := p.called()["Release"]; n != 2 {
			t.Errorf("released by %d statements", n)
		}
	})
}

// TestABatchOfReleasesThatFailsHalfWay: what its first statement has released is not released
// again, and is not lost.
func TestABatchOfReleasesThatFailsHalfWay(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		p := newProcess(s)
		l := p.locker(t, lease.Options{MaxInFlight: 1})
		locks := make(map[string]*dblock.Lock)
		for name, opts := range map[string][]dblock.Option{"first": nil, "alone": nil, "reader": {dblock.WithShared()}} {
			lock, err := l.Acquire(t.Context(), name, opts...)
			if err != nil {
				t.Fatal(err)
			}
			locks[name] = lock
		}
		var n atomic.Int64
		goOn := make(chan struct{})
		p.disturb(func(_ context.Context, call string, run func() error) error {
			if call != "Release" {
				return run()
			}
			switch n.Add(1) {
			case 1:
				<-goOn
			case 3:
				return &memlease.Failure{As: sqlerr.BadInput, Err: errors.New("poison")}
			}
			return run()
		})
		done := make(chan error, len(locks))
		for _, name := range []string{"first", "alone", "reader"} {
			go func() { done <- locks[name].Release(t.Context()) }()
			synctest.Wait()
		}
		close(goOn)
		for range locks {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		isFree(t, l)
	})
}
