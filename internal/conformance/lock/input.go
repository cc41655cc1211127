package lock

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/migrations"
)

func neverWaitsForItself(t *testing.T, v Place) {
	l := v.process(t, LeaseOptions{})
	lock := suite.Acquire(t, l, "k")
	_, err := l.Acquire(lock.Context(), "k")
	var dead *dblock.DeadlockError
	if !errors.Is(err, dblock.ErrDeadlock) || !errors.As(err, &dead) || dead.Key != "k" || !strings.Contains(dead.Where, "suite/locks.go:") {
		t.Errorf("got %v", err)
	}
	child, err := l.Acquire(lock.Context(), "k", dblock.WithReentrant())
	if err != nil {
		t.Fatal(err)
	}
	if l.Caps().Fencing && token(t, child) != token(t, lock) {
		t.Error("a child has another token")
	}
	suite.Release(t, lock)
	if child.Context().Err() != nil {
		t.Error("the child ended with its parent")
	}
	_, err = l.TryAcquire(t.Context(), "k")
	suite.IsHeld(t, err, "k")
	suite.Release(t, child)
	if _, err := l.TryAcquire(lock.Context(), "k"); !errors.Is(err, context.Canceled) && !errors.Is(err, dblock.ErrNotAcquired) {
		t.Errorf("below a context that has ended: %v", err)
	}
	free, err := l.TryAcquire(context.WithoutCancel(lock.Context()), "k") // below the context of what was released
	if err != nil {
		t.Fatal(err)
	}
	suite.Release(t, free)
	err = dblock.Do(suite.Soon(t), l, "k", func(ctx context.Context, _ *dblock.Lock) error {
		_, err := l.Acquire(ctx, "k")
		return err
	})
	if !errors.Is(err, dblock.ErrDeadlock) {
		t.Errorf("below Do: %v", err)
	}
}

func keysAreBytes(t *testing.T, v Place) {
	l := v.process(t, LeaseOptions{})
	for _, key := range []string{"a", "A", "a ", " a", "\u00e1", "a\u0301", "a\t", "'; --", strings.Repeat("k", dblock.MaxKeyBytes), "%"} {
		lock, err := l.TryAcquire(t.Context(), key)
		if err != nil {
			t.Errorf("%q: %v", key, err)
			continue
		}
		defer suite.Release(t, lock)
	}
	for _, key := range []string{"", "a\x00b", "\xff", strings.Repeat("k", dblock.MaxKeyBytes+1)} {
		var invalid *dblock.InvalidError
		if _, err := l.TryAcquire(t.Context(), key); !errors.As(err, &invalid) || !errors.Is(err, dblock.ErrInvalid) || invalid.Field != "key" {
			t.Errorf("%.9q: %v", key, err)
		}
	}
}

func refusesWhatMakesNoSense(t *testing.T, v Place) {
	l := v.process(t, LeaseOptions{})
	for name, o := range map[string]dblock.Option{
		"no time":    dblock.WithMaxHold(0),
		"no time, 2": dblock.WithoutRenewal(-time.Second),
		"label":      dblock.WithLabel(strings.Repeat("l", dblock.MaxLabelBytes+1)),
		"data":       dblock.WithData(make([]byte, dblock.MaxDataBytes+1)),
	} {
		if _, err := l.TryAcquire(t.Context(), "k", o); !errors.Is(err, dblock.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !l.Caps().Shared || !l.Caps().Permits {
		t.Errorf("it can do %+v", l.Caps())
	}
	for _, o := range []LeaseOptions{
		{TTL: 999 * time.Millisecond}, {TTL: 25 * time.Hour}, {TTL: time.Second, Margin: time.Second}, {Margin: -1},
		{Poll: time.Millisecond}, {Label: "\xff"},
	} {
		if _, closePool, err := v.OpenLeases(t.Context(), o); !errors.Is(err, dblock.ErrInvalid) {
			if err == nil {
				closePool()
			}
			t.Errorf("%+v: %v", o, err)
		}
	}
	lock := suite.Acquire(t, l, "k")
	if err := lock.ExpireIn(t.Context(), 0); !errors.Is(err, dblock.ErrInvalid) {
		t.Errorf("ExpireIn 0: %v", err)
	}
	suite.Release(t, lock)
}

// locksWithTheDocumentedGrants does all there is as a user that has what docs/grants.md gives it.
func locksWithTheDocumentedGrants(t *testing.T, v *env) {
	as := &env{v.e, suite.ServiceUser(t, v.e.Kind, v.dsn, v.db), v.db}
	a, b := as.process(t, LeaseOptions{}), as.process(t, LeaseOptions{})
	lock := suite.Acquire(t, a, "k")
	if err := v.e.Guarded(t.Context(), a, lock, "SELECT 1", func() {}); err != nil {
		t.Error(err)
	}
	got := make(chan *dblock.Lock, 1)
	go func() { got <- suite.Acquire(t, b, "k") }()
	suite.Release(t, lock)
	next := <-got
	if err := next.ExpireIn(t.Context(), time.Hour); err != nil {
		t.Error(err)
	}
	v.exec(t, "UPDATE dblock_member SET expires_at = '2000-01-01'")
	suite.Release(t, suite.Acquire(t, a, "k"))
	if _, err := a.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := a.Held(t.Context()); err != nil {
		t.Error(err)
	}
	_ = next.Release(t.Context())
}

// locksInASchema has the tables where the connection does not look by itself.
func locksInASchema(t *testing.T, v *env) {
	name := "elsewhere"
	if v.e.Kind != devdb.Postgres { // databases are the server's
		var here string
		if err := v.db.QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&here); err != nil {
			t.Fatal(err)
		}
		name = here + "_e"
		v.exec(t, "CREATE DATABASE "+name)
		t.Cleanup(func() { _, _ = v.db.ExecContext(context.WithoutCancel(t.Context()), "DROP DATABASE "+name) })
	}
	if _, err := migrations.Up(t.Context(), v.db, migrations.Options{Schema: name}); err != nil {
		t.Fatal(err)
	}
	l, other := v.process(t, LeaseOptions{Schema: name}), v.process(t, LeaseOptions{})
	lock, there := suite.Acquire(t, l, "k"), suite.Acquire(t, other, "k")
	if err := v.e.Guarded(t.Context(), l, lock, "SELECT 1", func() {}); err != nil {
		t.Error(err)
	}
	if err := v.e.Guarded(t.Context(), other, lock, "SELECT 1", func() {}); !errors.Is(err, dblock.ErrFenced) {
		t.Errorf("a guard in the other schema: %v", err)
	}
	if n := v.count(t, "SELECT count(*) FROM "+name+".dblock_lease"); n != 1 {
		t.Errorf("%d leases", n)
	}
	if _, _, err := v.e.Open(t.Context(), v.dsn, LeaseOptions{Schema: "a\x00"}); !errors.Is(err, dblock.ErrInvalid) {
		t.Errorf("a schema with NUL: %v", err)
	}
	if _, err := l.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	if held, err := l.Held(t.Context()); err != nil || len(held) != 1 {
		t.Errorf("%v, %v", held, err)
	}
	suite.Release(t, lock)
	suite.Release(t, there)
}

// holdsForAnyTime: an end is refused, or the lock has it, however far away.
func holdsForAnyTime(t *testing.T, v Place) {
	l := v.process(t, LeaseOptions{})
	for _, d := range []time.Duration{math.MinInt64, -1, 0, 1, time.Millisecond - 1} {
		if lock, err := l.TryAcquire(t.Context(), "k", dblock.WithMaxHold(d)); !errors.Is(err, dblock.ErrInvalid) || lock != nil {
			t.Errorf("for %v: %v", d, err)
		}
		lock := suite.Acquire(t, l, "k")
		if err := lock.ExpireIn(t.Context(), d); !errors.Is(err, dblock.ErrInvalid) {
			t.Errorf("ends in %v: %v", d, err)
		}
		suite.Release(t, lock)
	}
	for _, d := range []time.Duration{math.MaxInt64 / 2, math.MaxInt64 - 1, math.MaxInt64} {
		for name, opts := range map[string][]dblock.Option{
			"WithMaxHold": {dblock.WithMaxHold(d)}, "WithoutRenewal": {dblock.WithoutRenewal(d)}, "WithPermits": {dblock.WithMaxHold(d), dblock.WithPermits(1, 2)},
		} {
			lock, err := l.TryAcquire(t.Context(), "for "+name, opts...)
			if err != nil {
				t.Errorf("%s(%v): %v", name, d, err)
				continue
			}
			if err := lock.ExpireIn(t.Context(), d); err != nil {
				t.Errorf("%s(%v): ends in %v: %v", name, d, d, err)
			}
			suite.Release(t, lock)
		}
	}
}
