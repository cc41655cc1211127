package lock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

func (contract) ShowsWhoHoldsWhat(t *testing.T, p Place) {
	l := p.process(t, LeaseOptions{Label: "worker 7"})
	b := suite.Acquire(t, l, "b")
	a := suite.Acquire(t, l, "a", dblock.WithLabel("by hand"), dblock.WithMaxHold(time.Hour),
		dblock.WithData([]byte{0, 255}))
	held := suite.Must(l.Held(t.Context()))(t)
	require.Len(t, held, 2)
	shows(t, held[0], dblock.HeldLock{Fence: fence(t, a), Holder: dblock.Holder{Label: "by hand"}, Data: held[0].Data})
	shows(t, held[1], dblock.HeldLock{Fence: fence(t, b), Holder: dblock.Holder{Label: "worker 7"}})
	suite.Release(t, a)
	suite.Release(t, b)
	assert.Empty(t, suite.Must(l.Held(t.Context()))(t))
}

// shows compares what is shown with what is expected, apart from times and the member.
func shows(t *testing.T, h, want dblock.HeldLock) {
	t.Helper()
	assert.Len(t, h.Holder.Member, 32)
	for _, d := range []time.Duration{h.Remaining - 1, h.Age} {
		assert.True(t, d >= 0 && d <= time.Minute, "%+v", h)
	}
	assert.Equal(t, want.Fence.Key, h.Key)
	assert.Equal(t, []any{want.Fence, want.Holder.Label, want.Mode, want.Permits, want.Limit, string(want.Data)},
		[]any{h.Fence, h.Holder.Label, h.Mode, h.Permits, h.Limit, string(h.Data)})
}

// ShowsOneHolder looks at a key of each mode: before its locks, with one of several, after them,
// and after the death of its holder.
func (contract) ShowsOneHolder(t *testing.T, p Place) {
	l, other := p.process(t, LeaseOptions{Label: "worker 7"}), p.process(t, LeaseOptions{})
	noHolder := func(key string, want error) {
		t.Helper()
		assert.ErrorIs(t, suite.Second(other.Holder(t.Context(), key)), want)
	}
	noHolder("", dblock.ErrInvalid)
	suite.IsFree(t, l, "near")
	of := dblock.Holder{Label: "worker 7"}
	keys := map[string]dblock.HeldLock{
		"alone": {Holder: of}, "readers": {Holder: of, Mode: dblock.ModeShared},
		"permits": {Holder: of, Mode: dblock.ModePermit, Permits: 2, Limit: 5},
	}
	for key, want := range keys {
		noHolder(key, dblock.ErrNotHeld)
		opts := map[string][]dblock.Option{"readers": {dblock.WithShared()}, "permits": {dblock.WithPermits(2, 5)}}[key]
		for _, data := range []string{"", "\x00\xff"} {
			with := append(opts, dblock.WithData([]byte(data)))
			locks := []*dblock.Lock{suite.Acquire(t, l, key, with...)}
			if key != "alone" {
				locks = append(locks, suite.Acquire(t, l, key, with...))
			}
			h := suite.Must(other.Holder(t.Context(), key))(t)
			if want.Fence, want.Data = fence(t, locks[0]), []byte(data); h.Fence != want.Fence {
				want.Fence = fence(t, locks[len(locks)-1])
			}
			shows(t, h, want)
			for len(locks) > 0 {
				suite.Release(t, locks[0])
				if locks = locks[1:]; len(locks) > 0 {
					assert.Equal(t, fence(t, locks[0]), suite.Must(other.Holder(t.Context(), key))(t).Fence)
				}
			}
			noHolder(key, dblock.ErrNotHeld)
		}
		lost := suite.Acquire(t, l, key, opts...)
		defer func() { _ = lost.Release(t.Context()) }() // lost, if its process has learned of it
	}
	p.ExpireMembers(t)
	for key := range keys {
		noHolder(key, dblock.ErrNotHeld)
	}
}

func (contract) SweepsWhatNobodyUses(t *testing.T, p Place) {
	l := p.process(t, LeaseOptions{})
	used, lasting := suite.Acquire(t, l, "used"), suite.Acquire(t, l, "lasting", dblock.WithoutRenewal(time.Hour))
	var last int64 // token of what is swept
	for i := range 5 {
		lock := suite.Acquire(t, l, fmt.Sprint("free", i))
		last = token(t, lock)
		suite.Release(t, lock)
	}
	p.AgeLeases(t)
	time.Sleep(time.Millisecond) // a token is above all before it by the clock
	fresh := suite.Acquire(t, l, "fresh")
	suite.Release(t, fresh)
	assert.EqualValues(t, 5, suite.Must(l.Sweep(t.Context()))(t))
	_, rows, _ := p.Rows(t)
	assert.Equal(t, 3, rows)
	for key, before := range map[string]int64{"fresh": token(t, fresh), "free4": last} {
		again := suite.Acquire(t, l, key)
		assert.Greater(t, token(t, again), before, key)
		suite.Release(t, again)
	}
	suite.Release(t, used)
	suite.Release(t, lasting)
}

func (contract) TellsTheObserver(t *testing.T, p Place) {
	observer, observed := suite.Observe()
	l := p.process(t, LeaseOptions{Observer: observer})
	lock := suite.Acquire(t, l, "k")
	suite.IsTaken(t, l, "k")
	suite.Release(t, lock)
	suite.IsLost(t, suite.Acquire(t, l, "short", dblock.WithMaxHold(200*time.Millisecond)), dblock.ReasonTimeUp)
	observed(t, "acquired k, not acquired k: true, released k, acquired short, lost short: "+string(dblock.ReasonTimeUp))
}

// NothingWorksAfterClose calls every method of a closed Locker.
func (contract) NothingWorksAfterClose(t *testing.T, p Place) {
	a, b := p.process(t, LeaseOptions{}), p.process(t, LeaseOptions{})
	lock := suite.Acquire(t, b, "k")
	assert.NoError(t, a.Close(t.Context()))
	ctx, keys := t.Context(), []string{"x", "y"}
	for name, err := range map[string]error{
		"Acquire":       suite.Second(a.Acquire(ctx, "k")),
		"TryAcquire":    suite.Second(a.TryAcquire(ctx, "free")),
		"AcquireAll":    suite.Second(a.AcquireAll(ctx, keys)),
		"TryAcquireAll": suite.Second(a.TryAcquireAll(ctx, keys)),
		"Held":          suite.Second(a.Held(ctx)),
		"Holder":        suite.Second(a.Holder(ctx, "k")),
		"ForceRelease":  a.ForceRelease(ctx, "k", lock.Fences()[0].Token),
		"SetPermits":    a.SetPermits(ctx, "s", 2),
		"Sweep":         suite.Second(a.Sweep(ctx)),
		"RunSweeper":    a.RunSweeper(ctx, time.Second),
	} {
		assert.ErrorIs(t, err, dblock.ErrClosed, name)
	}
	suite.Release(t, lock)
}

func (contract) AnEndedContextSendsNothing(t *testing.T, p Place) {
	l := p.process(t, LeaseOptions{})
	suite.IsFree(t, l, "k")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, err := range map[string]error{
		"Held":         suite.Second(l.Held(ctx)),
		"Holder":       suite.Second(l.Holder(ctx, "k")),
		"ForceRelease": l.ForceRelease(ctx, "k", 1),
		"SetPermits":   l.SetPermits(ctx, "s", 2),
		"Sweep":        suite.Second(l.Sweep(ctx)),
	} {
		assert.ErrorIs(t, err, context.Canceled, name)
		assert.NotErrorIs(t, err, dblock.ErrOutcomeUnknown, name)
	}
}
