package lock

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

func showsWhoHoldsWhat(t *testing.T, v Place) {
	l := v.process(t, LeaseOptions{Label: "worker 7"})
	b := suite.Acquire(t, l, "b")
	a := suite.Acquire(t, l, "a", dblock.WithLabel("by hand"), dblock.WithMaxHold(time.Hour), dblock.WithData([]byte{0, 255}))
	held, err := l.Held(t.Context())
	if err != nil || len(held) != 2 {
		t.Fatalf("%v, %v", held, err)
	}
	fa, _ := a.Fence()
	if h := held[0]; h.Key != "a" || h.Fence != fa || h.Holder.Label != "by hand" || h.Remaining <= 0 || h.Remaining > time.Minute {
		t.Errorf("shown: %+v", h)
	}
	if h := held[1]; h.Key != "b" || h.Holder.Label != "worker 7" || len(h.Holder.Member) != 32 || h.Age < 0 || h.Age > time.Minute {
		t.Errorf("shown: %+v", h)
	}
	suite.Release(t, a)
	suite.Release(t, b)
	if held, err := l.Held(t.Context()); err != nil || len(held) != 0 {
		t.Errorf("after the release: %v, %v", held, err)
	}
}

// showsOneHolder looks at one key: who holds it, and what it keeps beside it.
func showsOneHolder(t *testing.T, v Place) {
	l, other := v.process(t, LeaseOptions{Label: "worker 7"}), v.process(t, LeaseOptions{})
	if _, err := other.Holder(t.Context(), "k"); !errors.Is(err, dblock.ErrNotHeld) {
		t.Errorf("nobody ever held it: %v", err)
	}
	if _, err := other.Holder(t.Context(), ""); !errors.Is(err, dblock.ErrInvalid) {
		t.Errorf("an empty key: %v", err)
	}
	suite.Release(t, suite.Acquire(t, l, "near"))
	for _, data := range [][]byte{nil, {0, 255}} {
		lock := suite.Acquire(t, l, "k", dblock.WithData(data))
		f, _ := lock.Fence()
		h, err := other.Holder(t.Context(), "k")
		if err != nil || h.Key != "k" || h.Fence != f || h.Holder.Label != "worker 7" || len(h.Holder.Member) != 32 ||
			h.Remaining <= 0 || !bytes.Equal(h.Data, data) {
			t.Errorf("shown: %+v, %v", h, err)
		}
		suite.Release(t, lock)
		if _, err := other.Holder(t.Context(), "k"); !errors.Is(err, dblock.ErrNotHeld) {
			t.Errorf("after the release: %v", err)
		}
	}
	lock := suite.Acquire(t, l, "k")
	defer func() { _ = lock.Release(t.Context()) }() // lost, if it has learnt of it
	v.ExpireMembers(t)
	if _, err := other.Holder(t.Context(), "k"); !errors.Is(err, dblock.ErrNotHeld) {
		t.Errorf("its holder is dead: %v", err)
	}
}

// showsOneOfSeveral looks at keys that readers and permits hold: one of them, with its mode and data.
func showsOneOfSeveral(t *testing.T, v Place) {
	l, other := v.process(t, LeaseOptions{Label: "worker 7"}), v.process(t, LeaseOptions{})
	data := []byte{0, 255}
	for name, ways := range map[string]struct {
		option dblock.Option
		mode   dblock.Mode
		n, of  int
	}{"readers": {dblock.WithShared(), dblock.Shared, 0, 0}, "permits": {dblock.WithPermits(2, 5), dblock.Permits, 2, 5}} {
		first := suite.Acquire(t, l, name, ways.option, dblock.WithData(data))
		second := suite.Acquire(t, l, name, ways.option, dblock.WithData(data), dblock.WithLabel("worker 7"))
		h, err := other.Holder(t.Context(), name)
		if one, two := fence(t, first), fence(t, second); err != nil || h.Fence != one && h.Fence != two {
			t.Errorf("%s: %+v, %v, want one of %+v, %+v", name, h, err, one, two)
		}
		if h.Key != name || h.Mode != ways.mode || h.Permits != ways.n || h.Limit != ways.of || !bytes.Equal(h.Data, data) ||
			h.Holder.Label != "worker 7" || len(h.Holder.Member) != 32 || h.Remaining <= 0 {
			t.Errorf("%s: shown: %+v", name, h)
		}
		suite.Release(t, first)
		if h, err := other.Holder(t.Context(), name); err != nil || h.Fence != fence(t, second) {
			t.Errorf("%s after a release: %+v, %v", name, h, err)
		}
		suite.Release(t, second)
		if _, err := other.Holder(t.Context(), name); !errors.Is(err, dblock.ErrNotHeld) {
			t.Errorf("%s after both releases: %v", name, err)
		}
		lost := suite.Acquire(t, l, name, ways.option)
		defer func() { _ = lost.Release(t.Context()) }()
	}
	v.ExpireMembers(t)
	for _, name := range []string{"readers", "permits"} {
		if _, err := other.Holder(t.Context(), name); !errors.Is(err, dblock.ErrNotHeld) {
			t.Errorf("%s: their holder is dead: %v", name, err)
		}
	}
}

func fence(t *testing.T, lock *dblock.Lock) dblock.Fence {
	t.Helper()
	f, ok := lock.Fence()
	if !ok {
		t.Fatal("no fence")
	}
	return f
}

func sweepsWhatNobodyUses(t *testing.T, v Place) {
	l := v.process(t, LeaseOptions{})
	used := suite.Acquire(t, l, "used")
	lasting := suite.Acquire(t, l, "lasting", dblock.WithoutRenewal(time.Hour))
	var last int64 // token of what is swept
	for i := range 5 {
		lock := suite.Acquire(t, l, fmt.Sprint("free", i))
		last = token(t, lock)
		suite.Release(t, lock)
	}
	v.AgeLeases(t)
	time.Sleep(time.Millisecond) // a token is above all before it by the clock
	fresh := suite.Acquire(t, l, "fresh")
	suite.Release(t, fresh)
	if n, err := l.Sweep(t.Context()); err != nil || n != 5 {
		t.Errorf("swept %d rows, %v, want the 5 free ones", n, err)
	}
	if _, n, _ := v.Rows(t); n != 3 {
		t.Errorf("%d rows are left, want 3", n)
	}
	for key, before := range map[string]int64{"fresh": token(t, fresh), "free4": last} {
		again := suite.Acquire(t, l, key)
		if token(t, again) <= before {
			t.Errorf("%s: token %d after %d", key, token(t, again), before)
		}
		suite.Release(t, again)
	}
	suite.Release(t, used)
	suite.Release(t, lasting)
}

// sweepsNoReadersAway has readers hold a key for longer than what is unused is kept: whoever wants it for itself
// still waits for them.
func sweepsNoReadersAway(t *testing.T, v Place) {
	a, b := v.process(t, LeaseOptions{}), v.process(t, LeaseOptions{})
	reads := suite.Acquire(t, a, "k", dblock.WithShared())
	v.AgeLeases(t)
	if _, err := b.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	_, err := b.TryAcquire(t.Context(), "k")
	suite.IsHeld(t, err, "k")
	suite.Release(t, reads)
	suite.Release(t, suite.Acquire(t, b, "k"))
}

func tellsTheObserver(t *testing.T, v Place) {
	var mu sync.Mutex
	var told []string
	note := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, fmt.Sprintf(format, args...))
	}
	l := v.process(t, LeaseOptions{Observer: dblock.Observer{
		Acquired: func(key string, _ time.Duration) { note("acquired %s", key) },
		NotAcquired: func(key string, _ time.Duration, err error) {
			note("not acquired %s: %v", key, errors.Is(err, dblock.ErrNotAcquired))
		},
		Released: func(key string, _ time.Duration) { note("released %s", key) },
		Lost:     func(key string, _ time.Duration, why dblock.Reason) { note("lost %s: %s", key, why) },
	}})
	lock := suite.Acquire(t, l, "k")
	_, _ = l.TryAcquire(t.Context(), "k")
	suite.Release(t, lock)
	short := suite.Acquire(t, l, "short", dblock.WithMaxHold(200*time.Millisecond))
	suite.IsLost(t, short, dblock.Ended)
	want := "acquired k, not acquired k: true, released k, acquired short, lost short: " + string(dblock.Ended)
	sofar := func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(told, ", ")
	}
	for ctx := suite.Soon(t); sofar() != want; time.Sleep(time.Millisecond) { // the Observer is called after the holder
		if ctx.Err() != nil {
			t.Fatalf("told %s\nwant %s", sofar(), want)
		}
	}
}

func forceReleaseWantsTheToken(t *testing.T, v Place) {
	a, b := v.process(t, LeaseOptions{}), v.process(t, LeaseOptions{})
	lock := suite.Acquire(t, a, "k")
	for key, token := range map[string]int64{"k": token(t, lock) + 1, "nobody's": token(t, lock)} {
		if err := b.ForceRelease(t.Context(), key, token); !errors.Is(err, dblock.ErrNotHeld) {
			t.Errorf("%s with %d: %v", key, token, err)
		}
	}
	if err := b.ForceRelease(t.Context(), "k", token(t, lock)); err != nil {
		t.Fatal(err)
	}
	next := suite.Acquire(t, b, "k")
	if err := v.Check(t.Context(), a, lock); !errors.Is(err, dblock.ErrFenced) {
		t.Errorf("the old holder's guard: %v", err)
	}
	if err := lock.Release(t.Context()); err != nil && !errors.Is(err, dblock.ErrLost) { // it takes nothing from the new holder
		t.Errorf("the old holder's release: %v", err)
	}
	if _, err := a.TryAcquire(t.Context(), "k"); !errors.Is(err, dblock.ErrNotAcquired) {
		t.Errorf("after the old holder's release: %v", err)
	}
	suite.Release(t, next)
}
