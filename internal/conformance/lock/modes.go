package lock

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// leaseMode is one way to hold a lock.
type leaseMode struct {
	set         bool
	opts, whole []dblock.Option // whole are those of a caller that any holder keeps out
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
	keys  []string // of a set two
}

func (m modeCase) acquire(ctx context.Context, more ...dblock.Option) (*dblock.Lock, error) {
	opts := append(slices.Clone(m.opts), more...)
	if m.set {
		return m.a.AcquireAll(ctx, m.keys, opts...)
	}
	return m.a.Acquire(ctx, m.keys[0], opts...)
}

// held acquires the lock, and releases it when the test ends.
func (m modeCase) held(t *testing.T) *dblock.Lock {
	t.Helper()
	lock := suite.Must(m.acquire(suite.Soon(t)))(t)
	t.Cleanup(func() { _ = lock.Release(context.WithoutCancel(t.Context())) })
	return lock
}

// isFree fails unless the other process acquires every key soon.
func (m modeCase) isFree(t *testing.T) {
	t.Helper()
	for _, key := range m.keys {
		suite.IsFree(t, m.b, key, m.whole...)
	}
}

func (m modeCase) isHeld(t *testing.T) {
	t.Helper()
	for _, key := range m.keys {
		suite.IsTaken(t, m.b, key, m.whole...)
	}
}

// stolen force-releases the last key of a lock, and returns the lock. Its process is its own, so
// that no other test's call shares a statement with its calls.
func (m modeCase) stolen(t *testing.T) (lock *dblock.Lock, key string) {
	t.Helper()
	m.a = m.place.process(t, LeaseOptions{})
	lock = m.held(t)
	f := lock.Fences()[len(m.keys)-1]
	assert.ErrorIs(t, m.b.ForceRelease(t.Context(), f.Key, f.Token+1), dblock.ErrNotHeld)
	assert.ErrorIs(t, m.b.ForceRelease(t.Context(), "another", f.Token), dblock.ErrNotHeld)
	require.NoError(t, m.b.ForceRelease(t.Context(), f.Key, f.Token))
	return lock, f.Key
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
		lock, key := m.stolen(t)
		next := suite.Acquire(t, m.b, key, m.whole...)
		assert.True(t, isAny(m.place.Check(t.Context(), m.a, lock), dblock.ErrFenced, dblock.ErrLost), "a guard")
		endedFor(t, lock.Release(t.Context()), dblock.ReasonStolen)
		endedFor(t, lock.Release(t.Context()), dblock.ReasonStolen)
		suite.Release(t, next)
		m.isFree(t)
	},
	"a release of what an operator has released says so": func(t *testing.T, m modeCase) {
		lock, _ := m.stolen(t)
		endedFor(t, lock.Release(t.Context()), dblock.ReasonStolen)
		m.isFree(t)
	},
	"a release works under a context that has ended": func(t *testing.T, m modeCase) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		assert.NoError(t, m.held(t).Release(ctx))
		m.isFree(t)
	},
	"ExpireIn ends it": func(t *testing.T, m modeCase) {
		lock := m.held(t)
		err := lock.ExpireIn(t.Context(), 300*time.Millisecond)
		assert.True(t, err == nil || isAny(err, dblock.ErrLost), "%v", err)
		m.isFree(t)
		suite.IsLost(t, lock, dblock.ReasonTimeUp)
		endedFor(t, lock.ExpireIn(t.Context(), time.Minute), dblock.ReasonTimeUp)
	},
	"ExpireIn moves its end both ways": func(t *testing.T, m modeCase) {
		lock := m.held(t)
		assert.NoError(t, lock.ExpireIn(t.Context(), 30*time.Second))
		assert.LessOrEqual(t, time.Until(lock.ValidUntil()), 30*time.Second)
		assert.NoError(t, lock.ExpireIn(t.Context(), 2*time.Hour))
		assert.Greater(t, time.Until(lock.ValidUntil()), 31*time.Second)
		assert.False(t, m.ends && time.Until(lock.ValidUntil()) > time.Hour, "valid until %v", lock.ValidUntil())
	},
	"ExpireIn under a context that has ended writes nothing": func(t *testing.T, m modeCase) {
		lock := m.held(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := lock.ExpireIn(ctx, time.Millisecond)
		assert.ErrorIs(t, err, context.Canceled)
		assert.False(t, isAny(err, dblock.ErrOutcomeUnknown, dblock.ErrLost), "%v", err)
	},
	"ExpireIn after the release says so": func(t *testing.T, m modeCase) {
		lock := m.held(t)
		suite.Release(t, lock)
		endedFor(t, lock.ExpireIn(t.Context(), time.Minute), dblock.ReasonReleased)
	},
	"ExpireIn refuses what is no time": func(t *testing.T, m modeCase) {
		assert.ErrorIs(t, m.held(t).ExpireIn(t.Context(), 0), dblock.ErrInvalid)
	},
	"Held lists it while it is held": func(t *testing.T, m modeCase) {
		lock := m.held(t)
		list := func() []dblock.HeldLock {
			return slices.DeleteFunc(suite.Must(m.b.Held(t.Context()))(t), func(h dblock.HeldLock) bool {
				return !slices.Contains(m.keys, h.Key)
			})
		}
		held := list()
		require.Len(t, held, len(m.keys))
		for i, h := range held {
			assert.Equal(t, lock.Fences()[i], h.Fence)
			assert.Equal(t, h.Fence.Mode, h.Mode)
			assert.Equal(t, "a", h.Holder.Label)
			assert.Positive(t, h.Remaining)
		}
		suite.Release(t, lock)
		assert.Empty(t, list())
	},
	"tokens only grow": func(t *testing.T, m modeCase) {
		var last []dblock.Fence
		for range 3 {
			lock := suite.Must(m.acquire(suite.Soon(t)))(t)
			now := lock.Fences()
			require.Len(t, now, len(m.keys))
			_, one := lock.Fence()
			assert.Equal(t, len(now) == 1, one)
			for i := range last {
				same := now[i].Mode == dblock.ModeShared && now[i].Token == last[i].Token
				assert.True(t, now[i].Token > last[i].Token || same, "token %d after %d", now[i].Token, last[i].Token)
				assert.Equal(t, m.keys[i], now[i].Key)
				assert.NotEqual(t, last[i].Handle, now[i].Handle)
			}
			last = now
			suite.Release(t, lock)
		}
	},
	"below its own context it is a deadlock": func(t *testing.T, m modeCase) {
		assert.ErrorIs(t, suite.Second(m.acquire(m.held(t).Context())), dblock.ErrDeadlock)
	},
	"a reentrant child keeps it": func(t *testing.T, m modeCase) {
		lock := m.held(t)
		child := suite.Must(m.acquire(lock.Context(), dblock.WithReentrant()))(t)
		suite.Release(t, lock)
		m.isHeld(t)
		suite.Release(t, child)
		m.isFree(t)
	},
	"a bound context ends with it": func(t *testing.T, m modeCase) {
		lock := m.held(t)
		bound := lock.Bind(t.Context())
		assert.NoError(t, context.Cause(bound))
		suite.Release(t, lock)
		<-bound.Done()
		assert.Error(t, lock.Bind(t.Context()).Err(), "a context that is bound to a released lock")
	},
}

func (contract) EachModeKeepsItsPromises(t *testing.T, p Place) {
	a, b := p.process(t, LeaseOptions{Label: "a"}), p.process(t, LeaseOptions{Label: "b"})
	assert.GreaterOrEqual(t, len(leaseModes)*len(modeCalls), 60)
	for mode, of := range leaseModes {
		for call, test := range modeCalls {
			p.each(t, mode+"/"+call, func(t *testing.T) {
				keys := []string{fmt.Sprint(mode, " ", strings.ReplaceAll(call, " ", "_"))}
				if of.set {
					keys = append(keys, keys[0]+" too")
				}
				test(t, modeCase{of, p, a, b, keys})
			})
		}
	}
}
