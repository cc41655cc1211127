package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

func showsWhoHoldsWhat(t *testing.T, p Place) {
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

// showsOneHolder looks at one key with and without data, before and after its locks, and after the
// death of its holder.
func showsOneHolder(t *testing.T, p Place) {
	l, other := p.process(t, LeaseOptions{Label: "worker 7"}), p.process(t, LeaseOptions{})
	noHolder := func(key string, want error) {
		t.Helper()
		assert.ErrorIs(t, suite.Second(other.Holder(t.Context(), key)), want)
	}
	noHolder("k", dblock.ErrNotHeld)
	noHolder("", dblock.ErrInvalid)
	suite.IsFree(t, l, "near")
	for _, data := range []string{"", "\x00\xff"} {
		lock := suite.Acquire(t, l, "k", dblock.WithData([]byte(data)))
		want := dblock.HeldLock{Fence: fence(t, lock), Holder: dblock.Holder{Label: "worker 7"}, Data: []byte(data)}
		shows(t, suite.Must(other.Holder(t.Context(), "k"))(t), want)
		suite.Release(t, lock)
		noHolder("k", dblock.ErrNotHeld)
	}
	lock := suite.Acquire(t, l, "k")
	defer func() { _ = lock.Release(t.Context()) }() // lost, if its process has learned of it
	p.ExpireMembers(t)
	noHolder("k", dblock.ErrNotHeld)
}

// showsOneOfSeveral looks at keys that readers and permits hold.
func showsOneOfSeveral(t *testing.T, p Place) {
	l, other := p.process(t, LeaseOptions{Label: "worker 7"}), p.process(t, LeaseOptions{})
	data := []byte{0, 255}
	keys := map[string]dblock.Option{"readers": dblock.WithShared(), "permits": dblock.WithPermits(2, 5)}
	for key, mode := range keys {
		want := dblock.HeldLock{Holder: dblock.Holder{Label: "worker 7"}, Data: data, Mode: dblock.Shared}
		if key == "permits" {
			want.Mode, want.Permits, want.Limit = dblock.Permits, 2, 5
		}
		first := suite.Acquire(t, l, key, mode, dblock.WithData(data))
		second := suite.Acquire(t, l, key, mode, dblock.WithData(data), dblock.WithLabel("worker 7"))
		h := suite.Must(other.Holder(t.Context(), key))(t)
		if want.Fence = fence(t, second); h.Fence == fence(t, first) {
			want.Fence = h.Fence
		}
		shows(t, h, want)
		suite.Release(t, first)
		assert.Equal(t, fence(t, second), suite.Must(other.Holder(t.Context(), key))(t).Fence)
		suite.Release(t, second)
		assert.ErrorIs(t, suite.Second(other.Holder(t.Context(), key)), dblock.ErrNotHeld)
		lost := suite.Acquire(t, l, key, mode)
		defer func() { _ = lost.Release(t.Context()) }()
	}
	p.ExpireMembers(t)
	for key := range keys {
		assert.ErrorIs(t, suite.Second(other.Holder(t.Context(), key)), dblock.ErrNotHeld)
	}
}

func sweepsWhatNobodyUses(t *testing.T, p Place) {
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

// sweepsNoReadersAway has readers hold a key for longer than unused keys are kept.
func sweepsNoReadersAway(t *testing.T, p Place) {
	a, b := p.process(t, LeaseOptions{}), p.process(t, LeaseOptions{})
	reads := suite.Acquire(t, a, "k", dblock.WithShared())
	p.AgeLeases(t)
	assert.NoError(t, suite.Second(b.Sweep(t.Context())))
	suite.IsTaken(t, b, "k")
	suite.Release(t, reads)
	suite.IsFree(t, b, "k")
}

func tellsTheObserver(t *testing.T, p Place) {
	var mu sync.Mutex
	var events []string
	note := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, fmt.Sprintf(format, args...))
	}
	l := p.process(t, LeaseOptions{Observer: dblock.Observer{
		Acquired: func(key string, _ time.Duration) { note("acquired %s", key) },
		NotAcquired: func(key string, _ time.Duration, err error) {
			note("not acquired %s: %v", key, errors.Is(err, dblock.ErrNotAcquired))
		},
		Released: func(key string, _ time.Duration) { note("released %s", key) },
		Lost:     func(key string, _ time.Duration, why dblock.Reason) { note("lost %s: %s", key, why) },
	}})
	lock := suite.Acquire(t, l, "k")
	suite.IsTaken(t, l, "k")
	suite.Release(t, lock)
	suite.IsLost(t, suite.Acquire(t, l, "short", dblock.WithMaxHold(200*time.Millisecond)), dblock.Ended)
	want := "acquired k, not acquired k: true, released k, acquired short, lost short: " + string(dblock.Ended)
	suite.Until(t, want, func() bool { // the Observer is called after the holder
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(events, ", ") == want
	})
}

func forceReleaseWantsTheToken(t *testing.T, p Place) {
	a, b := p.process(t, LeaseOptions{}), p.process(t, LeaseOptions{})
	lock := suite.Acquire(t, a, "k")
	assert.ErrorIs(t, b.ForceRelease(t.Context(), "k", token(t, lock)+1), dblock.ErrNotHeld)
	assert.ErrorIs(t, b.ForceRelease(t.Context(), "another", token(t, lock)), dblock.ErrNotHeld)
	require.NoError(t, b.ForceRelease(t.Context(), "k", token(t, lock)))
	next := suite.Acquire(t, b, "k")
	assert.ErrorIs(t, p.Check(t.Context(), a, lock), dblock.ErrFenced)
	if err := lock.Release(t.Context()); err != nil { // it takes nothing from the new holder
		assert.ErrorIs(t, err, dblock.ErrLost)
	}
	assert.ErrorIs(t, suite.Second(a.TryAcquire(t.Context(), "k")), dblock.ErrNotAcquired)
	suite.Release(t, next)
}

// nothingWorksAfterClose calls every method of a closed Locker.
func nothingWorksAfterClose(t *testing.T, p Place) {
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

func anEndedContextSendsNothing(t *testing.T, p Place) {
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
