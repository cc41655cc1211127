package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// permitsAreLimited takes all permits of a semaphore, and no more.
func permitsAreLimited(t *testing.T, p Place) {
	a, b := p.process(t, LeaseOptions{}), p.process(t, LeaseOptions{})
	one, two := dblock.WithPermits(1, 3), dblock.WithPermits(2, 3)
	first, second := suite.Acquire(t, a, "k", one), suite.Acquire(t, b, "k", one)
	if token(t, first) == 0 || token(t, second) == 0 {
		t.Error("no token")
	}
	_, err := b.TryAcquire(t.Context(), "k", two)
	suite.IsHeld(t, err, "k")
	third := suite.Acquire(t, b, "k", one)
	for _, l := range []Leases{a, b} {
		_, err := l.TryAcquire(t.Context(), "k", one)
		suite.IsHeld(t, err, "k")
	}
	suite.Release(t, suite.Acquire(t, a, "k")) // a lock of the same name is another thing
	suite.Release(t, second)
	suite.Release(t, third)
	both := suite.Acquire(t, a, "k", two)
	_, err = b.TryAcquire(t.Context(), "k", one)
	suite.IsHeld(t, err, "k")
	if err := p.Check(t.Context(), a, both); err != nil {
		t.Error(err)
	}
	suite.Release(t, both)
	suite.Release(t, first)
	all := suite.Acquire(t, b, "k", dblock.WithPermits(3, 3))
	suite.Release(t, all)
	if err := p.Check(t.Context(), b, all); err == nil {
		t.Error("permits that were given back pass a guard")
	}
}

// refusesOtherLimits checks each number.
func refusesOtherLimits(t *testing.T, p Place) {
	l := p.process(t, LeaseOptions{})
	for _, bad := range [][2]int{{1, 0}, {0, 1}, {3, 2}, {-1, 2}, {1, -1}, {1, dblock.MaxPermits + 1}} {
		var invalid *dblock.InvalidError
		if _, err := l.Acquire(t.Context(), "k", dblock.WithPermits(bad[0], bad[1])); !errors.As(err, &invalid) {
			t.Errorf("%d of %d permits: %v", bad[0], bad[1], err)
		}
	}
	for _, bad := range []int{0, -1, dblock.MaxPermits + 1} {
		if err := l.SetPermits(t.Context(), "k", bad); !errors.Is(err, dblock.ErrInvalid) {
			t.Errorf("%d permits: %v", bad, err)
		}
	}
	suite.Release(t, suite.Acquire(t, l, "k", dblock.WithPermits(1, 2)))
	var limit *dblock.LimitError
	_, err := l.Acquire(t.Context(), "k", dblock.WithPermits(1, 3))
	if !errors.As(err, &limit) || !errors.Is(err, dblock.ErrLimit) || *limit != (dblock.LimitError{Key: "k", Stored: 2, Asked: 3}) {
		t.Errorf("another limit: %v", err)
	}
	suite.Release(t, suite.Acquire(t, l, "k", dblock.WithPermits(2, 2)))
	outer := suite.Acquire(t, l, "k", dblock.WithPermits(1, 2))
	if _, err := l.Acquire(outer.Context(), "k", dblock.WithPermits(1, 2)); !errors.Is(err, dblock.ErrDeadlock) {
		t.Errorf("below itself: %v", err)
	}
	suite.Release(t, outer)
}

// changesItsPermits gives a semaphore that is in use more and fewer.
func changesItsPermits(t *testing.T, p Place) {
	a, b := p.process(t, LeaseOptions{}), p.process(t, LeaseOptions{})
	first := suite.Acquire(t, a, "k", dblock.WithPermits(1, 1))
	if err := b.SetPermits(t.Context(), "k", 3); err != nil {
		t.Fatal(err)
	}
	second, third := suite.Acquire(t, b, "k", dblock.WithPermits(1, 3)), suite.Acquire(t, a, "k", dblock.WithPermits(1, 3))
	if err := b.SetPermits(t.Context(), "k", 2); err != nil {
		t.Fatal(err)
	}
	for _, lock := range []*dblock.Lock{first, second, third} {
		if err := lock.Context().Err(); err != nil {
			t.Errorf("one that was held before: %v", err)
		}
	}
	_, err := a.TryAcquire(t.Context(), "k", dblock.WithPermits(1, 2))
	suite.IsHeld(t, err, "k")
	suite.Release(t, third)
	_, err = a.TryAcquire(t.Context(), "k", dblock.WithPermits(1, 2))
	suite.IsHeld(t, err, "k")
	got := make(chan *dblock.Lock, 1)
	go func() { got <- suite.Acquire(t, b, "k", dblock.WithPermits(1, 2)) }()
	suite.Release(t, first)
	suite.Release(t, <-got)
	suite.Release(t, second)
	if err := a.SetPermits(t.Context(), "new", 2); err != nil {
		t.Fatal(err)
	}
	suite.Release(t, suite.Acquire(t, b, "new", dblock.WithPermits(2, 2)))
}

// fewerPermitsAreFewer has whoever holds those of a larger number count against the smaller one, in whatever order they go.
func fewerPermitsAreFewer(t *testing.T, p Place) {
	l := p.process(t, LeaseOptions{})
	for last := range 3 {
		key := fmt.Sprint("k", last)
		var held []*dblock.Lock
		for range 3 {
			held = append(held, suite.Acquire(t, l, key, dblock.WithPermits(1, 3)))
		}
		if err := l.SetPermits(t.Context(), key, 1); err != nil {
			t.Fatal(err)
		}
		for i, lock := range held {
			if i != last {
				suite.Release(t, lock)
				_, err := l.TryAcquire(t.Context(), key, dblock.WithPermits(1, 1))
				suite.IsHeld(t, err, key)
			}
		}
		got := make(chan *dblock.Lock, 1)
		go func() { got <- suite.Acquire(t, l, key, dblock.WithPermits(1, 1)) }()
		suite.Release(t, held[last])
		suite.Release(t, <-got)
	}
}

// theDeadGivePermitsBack lets holders die, or their time run out.
func theDeadGivePermitsBack(t *testing.T, p Place) {
	a, b := p.process(t, LeaseOptions{}), p.process(t, LeaseOptions{})
	dead := suite.Acquire(t, a, "dies", dblock.WithPermits(2, 3))
	p.ForgetMembers(t)
	all := suite.Acquire(t, b, "dies", dblock.WithPermits(3, 3))
	if err := p.Check(t.Context(), a, dead); !errors.Is(err, dblock.ErrFenced) && !errors.Is(err, dblock.ErrLost) {
		t.Errorf("permits of the dead: %v", err)
	}
	suite.Release(t, all)
	_ = dead.Release(t.Context()) // it learns of it by its next heartbeat
	one := dblock.WithPermits(1, 1)
	ends := suite.Acquire(t, a, "ends", one, dblock.WithMaxHold(50*time.Millisecond))
	suite.Release(t, suite.Acquire(t, b, "ends", one))
	suite.IsLost(t, ends, dblock.Ended)

	const lasting = 2 * time.Second
	began := time.Now()
	lasts := suite.Acquire(t, a, "lasts", one, dblock.WithoutRenewal(lasting))
	p.ForgetMembers(t)
	if _, err := b.TryAcquire(t.Context(), "lasts", one); err == nil && time.Since(began) < lasting {
		t.Error("taken from one whose time is not up")
	}
	suite.Release(t, suite.Acquire(t, b, "lasts", one))
	suite.IsLost(t, lasts, dblock.Ended)
}

// showsPermits lists and force-releases them.
func showsPermits(t *testing.T, p Place) {
	l := p.process(t, LeaseOptions{Label: "process"})
	two := suite.Acquire(t, l, "k", dblock.WithPermits(2, 5))
	held, err := l.Held(t.Context())
	if err != nil || len(held) != 1 {
		t.Fatalf("%+v, %v", held, err)
	}
	h := held[0]
	if h.Key != "k" || h.Mode != dblock.Permits || h.Permits != 2 || h.Limit != 5 || h.Fence.Token != token(t, two) || h.Holder.Label != "process" {
		t.Errorf("%+v", h)
	}
	if err := l.ForceRelease(t.Context(), "k", token(t, two)); err != nil {
		t.Error(err)
	}
	suite.Release(t, suite.Acquire(t, l, "k", dblock.WithPermits(5, 5)))
	endedFor(t, two.Release(t.Context()), dblock.Stolen) // it knew of nothing
}

// neverMoreThanPermitted counts who holds permits at once, in several processes; the control counts those who take none.
func neverMoreThanPermitted(t *testing.T, p Place) {
	const limit, processes, callers, rounds = 3, 4, 5, 10
	var within, most, without atomic.Int64
	peak := func(n int64, in *atomic.Int64) {
		now := in.Add(n)
		for was := most.Load(); now > was && !most.CompareAndSwap(was, now); was = most.Load() {
		}
	}
	var crowd sync.WaitGroup
	for i := range processes {
		l := p.process(t, LeaseOptions{})
		for range callers {
			crowd.Go(func() {
				for range rounds {
					n := 1 + i%2
					lock, err := l.Acquire(suite.Soon(t), "k", dblock.WithPermits(n, limit))
					if err != nil {
						t.Error(err)
						return
					}
					peak(int64(n), &within)
					time.Sleep(time.Millisecond)
					within.Add(-int64(n))
					suite.Release(t, lock)
				}
			})
		}
	}
	crowd.Wait()
	if most.Load() > limit {
		t.Errorf("%d permits at once, of %d", most.Load(), limit)
	}
	most.Store(0)
	var all sync.WaitGroup
	all.Add(processes)
	for range processes {
		crowd.Go(func() {
			peak(1, &without)
			all.Done()
			all.Wait()
		})
	}
	crowd.Wait()
	if most.Load() <= limit {
		t.Errorf("without permits %d at once: this shows nothing", most.Load())
	}
}

// aWaitForPermitsEnds with its context, in line or not.
func aWaitForPermitsEnds(t *testing.T, p Place) {
	l := p.process(t, LeaseOptions{})
	one := suite.Acquire(t, l, "k", dblock.WithPermits(1, 1))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var crowd sync.WaitGroup
	for range 5 {
		crowd.Go(func() {
			_, err := l.Acquire(ctx, "k", dblock.WithPermits(1, 1))
			if errors.Is(err, dblock.ErrOutcomeUnknown) { // one may be asking just then
				return
			}
			if suite.IsHeld(t, err, "k"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the wait ended with %v", err)
			}
		})
	}
	crowd.Wait()
	suite.Release(t, one)
	suite.Release(t, suite.Acquire(t, l, "k", dblock.WithPermits(1, 1)))
}

// freesAllPermits gives permits back of which somebody has one locked, as a guard has that is about to lock them all.
func freesAllPermits(t *testing.T, v *env) {
	l := v.process(t, LeaseOptions{})
	all := dblock.WithPermits(3, 3)
	held := suite.Acquire(t, l, "k", all)
	tx, err := v.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), "SELECT slot FROM dblock_permit WHERE lease_key = 'k' AND slot = 2 FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	suite.Release(t, held)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	free, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	next, err := l.Acquire(free, "k", all)
	if err != nil {
		t.Fatalf("what was given back: %v", err)
	}
	suite.Release(t, next)
}
