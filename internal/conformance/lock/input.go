package lock

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

func (contract) NeverWaitsForItself(t *testing.T, p Place) {
	l := p.process(t, LeaseOptions{})
	lock := suite.Acquire(t, l, "k")
	_, err := l.Acquire(lock.Context(), "k")
	assert.ErrorIs(t, err, dblock.ErrDeadlock)
	deadlock := suite.As[*dblock.DeadlockError](t, err)
	assert.Equal(t, "k", deadlock.Key)
	assert.Contains(t, deadlock.Where, "conformance/suite/")
	child := suite.Must(l.Acquire(lock.Context(), "k", dblock.WithReentrant()))(t)
	assert.Equal(t, token(t, lock), token(t, child))
	suite.Release(t, lock)
	assert.NoError(t, child.Context().Err(), "the child of a released lock")
	suite.IsTaken(t, l, "k")
	suite.Release(t, child)
	_, err = l.TryAcquire(lock.Context(), "k")
	assert.True(t, isAny(err, context.Canceled, dblock.ErrNotAcquired), "below a context that has ended: %v", err)
	suite.Release(t, suite.Must(l.TryAcquire(context.WithoutCancel(lock.Context()), "k"))(t))
	err = dblock.Do(suite.Soon(t), l, "k", func(ctx context.Context, _ *dblock.Lock) error {
		return suite.Second(l.Acquire(ctx, "k"))
	})
	assert.ErrorIs(t, err, dblock.ErrDeadlock, "below Do")
}

func (contract) KeysAreBytes(t *testing.T, p Place) {
	l := p.process(t, LeaseOptions{})
	long := strings.Repeat("k", dblock.MaxLockKeyBytes)
	for _, key := range []string{"a", "A", "a ", " a", "\u00e1", "a\u0301", "a\t", "'; --", long, "%"} {
		defer suite.Release(t, suite.Must(l.TryAcquire(t.Context(), key))(t))
	}
	for _, key := range []string{"", "a\x00b", "\xff", long + "k"} {
		_, err := l.TryAcquire(t.Context(), key)
		assert.ErrorIs(t, err, dblock.ErrInvalid)
		assert.Equal(t, "key", suite.As[*dblock.InvalidError](t, err).Field)
	}
}

func (contract) RefusesWhatMakesNoSense(t *testing.T, p Place) {
	l := p.process(t, LeaseOptions{})
	for name, o := range map[string]dblock.Option{
		"WithMaxHold":    dblock.WithMaxHold(0),
		"WithoutRenewal": dblock.WithoutRenewal(-time.Second),
		"WithLabel":      dblock.WithLabel(strings.Repeat("l", dblock.MaxLabelBytes+1)),
		"WithData":       dblock.WithData(make([]byte, dblock.MaxDataBytes+1)),
	} {
		assert.ErrorIs(t, suite.Second(l.TryAcquire(t.Context(), "k", o)), dblock.ErrInvalid, name)
	}
	assert.True(t, l.Caps().Shared && l.Caps().Permits, "%+v", l.Caps())
	for _, o := range []LeaseOptions{
		{TTL: 999 * time.Millisecond}, {TTL: 25 * time.Hour}, {TTL: time.Second, Margin: time.Second}, {Margin: -1},
		{Poll: time.Millisecond}, {Label: "\xff"},
	} {
		_, closePool, err := p.OpenLeases(t.Context(), o)
		if !assert.ErrorIs(t, err, dblock.ErrInvalid, "%+v", o) && err == nil {
			closePool()
		}
	}
}

// HoldsForAnyTime: an end is refused, or the lock has it.
func (contract) HoldsForAnyTime(t *testing.T, p Place) {
	l := p.process(t, LeaseOptions{})
	for _, d := range []time.Duration{math.MinInt64, -1, 0, 1, time.Millisecond - 1} {
		assert.ErrorIs(t, suite.Second(l.TryAcquire(t.Context(), "k", dblock.WithMaxHold(d))), dblock.ErrInvalid, d)
		lock := suite.Acquire(t, l, "k")
		assert.ErrorIs(t, lock.ExpireIn(t.Context(), d), dblock.ErrInvalid, d)
		suite.Release(t, lock)
	}
	for _, d := range []time.Duration{math.MaxInt64 / 2, math.MaxInt64 - 1, math.MaxInt64} {
		for name, opts := range map[string][]dblock.Option{
			"WithMaxHold":    {dblock.WithMaxHold(d)},
			"WithoutRenewal": {dblock.WithoutRenewal(d)},
			"WithPermits":    {dblock.WithMaxHold(d), dblock.WithPermits(1, 2)},
		} {
			lock := suite.Must(l.TryAcquire(t.Context(), "for "+name, opts...))(t)
			assert.NoError(t, lock.ExpireIn(t.Context(), d), "%s(%v)", name, d)
			suite.Release(t, lock)
		}
	}
}

const ofThisProcess = "another caller of this process"

// ErrorsSayWhatIsKnown: the error of a refused call names a holder only if one is known.
func (contract) ErrorsSayWhatIsKnown(t *testing.T, p Place) {
	a, b := p.process(t, LeaseOptions{Label: "process a"}), p.process(t, LeaseOptions{Label: "process b"})
	says := func(what string, err error, want, not string) {
		t.Helper()
		assert.ErrorIs(t, err, dblock.ErrNotAcquired, what)
		assert.ErrorContains(t, err, want, what)
		assert.NotContains(t, err.Error(), not, what)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for what, call := range map[string]func() (*dblock.Lock, error){
		"Acquire":       func() (*dblock.Lock, error) { return a.Acquire(ended, "free") },
		"TryAcquire":    func() (*dblock.Lock, error) { return a.TryAcquire(ended, "free") },
		"AcquireAll":    func() (*dblock.Lock, error) { return a.AcquireAll(ended, []string{"free", "too"}) },
		"TryAcquireAll": func() (*dblock.Lock, error) { return a.TryAcquireAll(ended, []string{"free", "too"}) },
		"WithShared":    func() (*dblock.Lock, error) { return a.Acquire(ended, "free", dblock.WithShared()) },
		"WithPermits":   func() (*dblock.Lock, error) { return a.Acquire(ended, "free", dblock.WithPermits(1, 2)) },
	} {
		_, err := call()
		says(what, err, "before the server was asked", "held by")
		assert.ErrorIs(t, err, context.Canceled, what)
	}

	first := suite.Acquire(t, b, "k")
	says("a key of another process", suite.Second(a.TryAcquire(t.Context(), "k")), "process b", ofThisProcess)
	next := suite.Waiter(t, a, "k")
	suite.Until(t, "a process waits for the key", func() bool {
		held := suite.Must(b.Held(t.Context()))(t)
		return len(held) == 1 && held[0].Waiters > 0
	})
	suite.Release(t, first)
	second := next()
	says("a key of this process", suite.Second(a.TryAcquire(t.Context(), "k")), ofThisProcess, "process b")
	suite.Release(t, second)
}
