package lock

import (
	"errors"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// RunWith locks over connections with other settings than the usual: each gives the same answers. A setting
// is what makes one DSN of another.
func (e Lease) RunWith(t *testing.T, settings map[string]func(t *testing.T, dsn string) string) {
	for name, setting := range settings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := e.env(t)
			direct := v.process(t, LeaseOptions{})
			v.dsn = setting(t, v.dsn)
			v.locksAsUsual(t, direct)
		})
	}
}

// locksAsUsual tries what leases can do, between a process with odd settings and one without.
func (v *env) locksAsUsual(t *testing.T, other Leases) {
	l := v.process(t, LeaseOptions{Label: "odd"})
	v.exec(t, "CREATE TABLE notes (n INT)")
	for _, key := range []string{"fresh", "fresh", "other", "Fresh", "fresh "} {
		lock := suite.Acquire(t, l, key, dblock.WithLabel("läbel"), dblock.WithData([]byte{0, 1, 0xff}))
		_, err := other.TryAcquire(t.Context(), key)
		if held := suite.IsHeld(t, err, key); held.Holder.Label != "läbel" {
			t.Errorf("%q is held by %+v", key, held.Holder)
		}
		if err := v.e.Guarded(t.Context(), l, lock, "INSERT INTO notes VALUES (1)", func() {}); err != nil {
			t.Errorf("a guarded write under %q: %v", key, err)
		}
		suite.Release(t, lock)
	}
	if n := v.count(t, "SELECT count(*) FROM notes"); n != 5 {
		t.Errorf("%d of 5 guarded writes are there", n)
	}
	v.handsToAndFro(t, l, other)
	v.fencesOff(t, l, other)
	if _, err := l.Sweep(t.Context()); err != nil {
		t.Errorf("sweep: %v", err)
	}
}

// handsToAndFro has two processes wait for each other.
func (v *env) handsToAndFro(t *testing.T, a, b Leases) {
	t.Helper()
	lock := suite.Acquire(t, a, "ball")
	for n := range 10 {
		catcher := b
		if n%2 == 1 {
			catcher = a
		}
		caught := make(chan *dblock.Lock)
		go func() {
			next, err := catcher.Acquire(suite.Soon(t), "ball")
			if err != nil {
				t.Error(err)
			}
			caught <- next
		}()
		before := token(t, lock)
		suite.Release(t, lock)
		if lock = <-caught; lock == nil {
			return
		}
		if token(t, lock) <= before {
			t.Errorf("token %d after %d", token(t, lock), before)
		}
	}
	suite.Release(t, lock)
}

// fencesOff has a lease taken from its holder, who must not write then.
func (v *env) fencesOff(t *testing.T, l, other Leases) {
	t.Helper()
	lock := suite.Acquire(t, l, "stolen")
	if err := other.ForceRelease(t.Context(), "stolen", token(t, lock)); err != nil {
		t.Fatal(err)
	}
	thief := suite.Acquire(t, other, "stolen")
	err := v.e.Guarded(t.Context(), l, lock, "INSERT INTO notes VALUES (2)", func() {})
	if !errors.Is(err, dblock.ErrFenced) && !errors.Is(err, dblock.ErrLost) {
		t.Errorf("a guarded write without the lock: %v", err)
	}
	if n := v.count(t, "SELECT count(*) FROM notes WHERE n = 2"); n != 0 {
		t.Error("it was written")
	}
	_ = lock.Release(t.Context())
	suite.Release(t, thief)
}
