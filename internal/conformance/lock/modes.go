package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// leaseMode is one way to hold a lock.
type leaseMode struct {
	set         bool
	opts, whole []dblock.Option // whole is acquired by the one who shows that nobody else has anything
	ends        bool            // within an hour
}

var leaseModes = map[string]leaseMode{
	"exclusive": {},
	"shared":    {opts: []dblock.Option{dblock.WithShared()}},
	"permits":   {opts: []dblock.Option{dblock.WithPermits(2, 3)}, whole: []dblock.Option{dblock.WithPermits(3, 3)}},
	"set":       {set: true},
	"capped":    {opts: []dblock.Option{dblock.WithMaxHold(time.Hour)}, ends: true},
	"detached":  {opts: []dblock.Option{dblock.WithoutRenewal(time.Hour)}, ends: true},
}

// modeCase is a lock of one mode, and two processes.
type modeCase struct {
	leaseMode
	place Place
	a, b  Leases
	key   string
}

// alone is the case with a process a of its own: no other test's call shares a statement with its calls.
func (m modeCase) alone(t *testing.T) modeCase {
	t.Helper()
	m.a = m.place.process(t, LeaseOptions{Label: "a"})
	return m
}

// keys are what is held: of a set two.
func (m modeCase) keys() []string {
	if m.set {
		return []string{m.key, m.key + " too"}
	}
	return []string{m.key}
}

func (m modeCase) acquire(ctx context.Context, more ...dblock.Option) (*dblock.Lock, error) {
	opts := append(slices.Clone(m.opts), more...)
	if m.set {
		return m.a.AcquireAll(ctx, m.keys(), opts...)
	}
	return m.a.Acquire(ctx, m.key, opts...)
}

// held acquires the lock, and gives it back when the test ends.
func (m modeCase) held(t *testing.T) *dblock.Lock {
	t.Helper()
	lock, err := m.acquire(suite.Soon(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Release(context.WithoutCancel(t.Context())) })
	return lock
}

// isFree fails unless the other process gets all of it soon.
func (m modeCase) isFree(t *testing.T) {
	t.Helper()
	for _, key := range m.keys() {
		suite.Release(t, suite.Acquire(t, m.b, key, m.whole...))
	}
}

// IsHeld fails unless the other process is refused.
func (m modeCase) isHeld(t *testing.T) {
	t.Helper()
	for _, key := range m.keys() {
		_, err := m.b.TryAcquire(t.Context(), key, m.whole...)
		suite.IsHeld(t, err, key)
	}
}

// endedFor fails unless err and the lock say for which reason it has ended.
func endedFor(t *testing.T, err error, want dblock.Reason) {
	t.Helper()
	var lost *dblock.LostError
	if !errors.As(err, &lost) || lost.Reason != want {
		t.Errorf("%v, want: %s", err, want)
	}
}

// modeCalls are what each mode promises of each call.
var modeCalls = map[string]func(*testing.T, modeCase){
	"another process is refused": func(t *testing.T, m modeCase) {
		m.held(t)
		m.isHeld(t)
	},
	"a release frees all of it": func(t *testing.T, m modeCase) {
		suite.Release(t, m.held(t))
		m.isFree(t)
	},
	"a second release returns what the first one did": func(t *testing.T, m modeCase) {
		lock := m.held(t)
		suite.Release(t, lock)
		suite.Release(t, lock)
	},
	"a release of what was taken away says so": func(t *testing.T, m modeCase) {
		lock := m.alone(t).held(t)
		fences := lock.Fences()
		f := fences[len(fences)-1] // of a set one key is enough
		if err := m.b.ForceRelease(t.Context(), f.Key, f.Token); err != nil {
			t.Fatal(err)
		}
		next := suite.Acquire(t, m.b, f.Key, m.whole...)
		endedFor(t, lock.Release(t.Context()), dblock.Stolen)
		endedFor(t, lock.Release(t.Context()), dblock.Stolen)
		suite.Release(t, next)
		m.isFree(t)
	},
	"a release of what an operator has released says so": func(t *testing.T, m modeCase) {
		lock := m.alone(t).held(t)
		if f := lock.Fences()[0]; m.b.ForceRelease(t.Context(), f.Key, f.Token) != nil {
			t.Fatal("not released")
		}
		endedFor(t, lock.Release(t.Context()), dblock.Stolen)
		m.isFree(t)
	},
	"a release works under a context that has ended": func(t *testing.T, m modeCase) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := m.held(t).Release(ctx); err != nil {
			t.Error(err)
		}
		m.isFree(t)
	},
	"ExpireIn ends it": func(t *testing.T, m modeCase) {
		lock := m.held(t)
		if err := lock.ExpireIn(t.Context(), 300*time.Millisecond); err != nil && !errors.Is(err, dblock.ErrLost) {
			t.Error(err)
		}
		m.isFree(t)
		suite.IsLost(t, lock, dblock.Ended)
		endedFor(t, lock.ExpireIn(t.Context(), time.Minute), dblock.Ended)
	},
	"ExpireIn moves its end both ways": func(t *testing.T, m modeCase) {
		lock := m.held(t)
		if err := lock.ExpireIn(t.Context(), 30*time.Second); err != nil || time.Until(lock.ValidUntil()) > 30*time.Second {
			t.Errorf("%v, valid for %v", err, time.Until(lock.ValidUntil()))
		}
		if err := lock.ExpireIn(t.Context(), 2*time.Hour); err != nil || time.Until(lock.ValidUntil()) < 31*time.Second {
			t.Errorf("%v, valid for %v", err, time.Until(lock.ValidUntil()))
		}
		if m.ends && time.Until(lock.ValidUntil()) > time.Hour {
			t.Errorf("valid for %v, and for an hour at most", time.Until(lock.ValidUntil()))
		}
	},
	"ExpireIn under a context that has ended writes nothing": func(t *testing.T, m modeCase) {
		lock := m.held(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := lock.ExpireIn(ctx, time.Millisecond)
		if !errors.Is(err, context.Canceled) || suite.IsUnknown(err) || errors.Is(err, dblock.ErrLost) {
			t.Errorf("told %v", err)
		}
	},
	"ExpireIn after the release says so": func(t *testing.T, m modeCase) {
		lock := m.held(t)
		suite.Release(t, lock)
		endedFor(t, lock.ExpireIn(t.Context(), time.Minute), dblock.Released)
	},
	"ExpireIn refuses what is no time": func(t *testing.T, m modeCase) {
		if err := m.held(t).ExpireIn(t.Context(), 0); !errors.Is(err, dblock.ErrInvalid) {
			t.Errorf("told %v", err)
		}
	},
	"Held lists it while it is held": func(t *testing.T, m modeCase) {
		lock := m.held(t)
		for _, want := range []int{len(m.keys()), 0} {
			held, err := m.b.Held(t.Context())
			held = slices.DeleteFunc(held, func(h dblock.HeldLock) bool { return !slices.Contains(m.keys(), h.Key) })
			if err != nil || len(held) != want {
				t.Errorf("%+v, %v; want %d", held, err, want)
			}
			for i, h := range held {
				if f := lock.Fences()[i]; h.Fence != f || h.Mode != f.Mode || h.Holder.Label != "a" || h.Remaining <= 0 {
					t.Errorf("%+v, with the fence %+v", h, f)
				}
			}
			suite.Release(t, lock)
		}
	},
	"tokens only grow": func(t *testing.T, m modeCase) {
		var last []dblock.Fence
		for range 3 {
			lock, err := m.acquire(suite.Soon(t))
			if err != nil {
				t.Fatal(err)
			}
			now := lock.Fences()
			if _, one := lock.Fence(); len(now) != len(m.keys()) || one != (len(now) == 1) {
				t.Errorf("fences %+v", now)
			}
			for i := range last {
				again := now[i].Mode == dblock.Shared && now[i].Token == last[i].Token
				if now[i].Token <= last[i].Token && !again || now[i].Key != m.keys()[i] || now[i].Handle == last[i].Handle {
					t.Errorf("%+v after %+v", now[i], last[i])
				}
			}
			last = now
			suite.Release(t, lock)
		}
	},
	"below its own context it is a deadlock": func(t *testing.T, m modeCase) {
		lock := m.held(t)
		if _, err := m.acquire(lock.Context()); !errors.Is(err, dblock.ErrDeadlock) {
			t.Errorf("told %v", err)
		}
	},
	"a reentrant child keeps it": func(t *testing.T, m modeCase) {
		lock := m.held(t)
		child, err := m.acquire(lock.Context(), dblock.WithReentrant())
		if err != nil {
			t.Fatal(err)
		}
		suite.Release(t, lock)
		m.isHeld(t)
		suite.Release(t, child)
		m.isFree(t)
	},
	"a bound context ends with it": func(t *testing.T, m modeCase) {
		lock := m.held(t)
		bound := lock.Bind(t.Context())
		if bound.Err() != nil {
			t.Error(context.Cause(bound))
		}
		suite.Release(t, lock)
		<-bound.Done()
		if again := lock.Bind(t.Context()); again.Err() == nil {
			t.Error("a context of a lock that was released is alive")
		}
	},
}

// eachModeKeepsItsPromises holds every mode to every call.
func eachModeKeepsItsPromises(t *testing.T, p Place) {
	a, b := p.process(t, LeaseOptions{Label: "a"}), p.process(t, LeaseOptions{Label: "b"})
	if n := len(leaseModes) * len(modeCalls); n < 60 {
		t.Errorf("%d behaviors, want 60 at least", n)
	}
	for mode, of := range leaseModes {
		for call, test := range modeCalls {
			p.each(t, mode+"/"+call, func(t *testing.T) {
				test(t, modeCase{of, p, a, b, fmt.Sprint(mode, " ", strings.ReplaceAll(call, " ", "_"))})
			})
		}
	}
}
