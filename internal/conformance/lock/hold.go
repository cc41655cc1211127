package lock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

func excludes(t *testing.T, v Place) {
	a, b := v.process(t, LeaseOptions{Label: "a's process"}), v.process(t, LeaseOptions{})
	first := suite.Acquire(t, a, "k", dblock.WithLabel("nightly run"))
	_, err := b.TryAcquire(t.Context(), "k")
	held := suite.IsHeld(t, err, "k")
	if held.Holder.Label != "nightly run" || len(held.Holder.Member) != 32 || held.Holder.Token != token(t, first) {
		t.Errorf("told that it is held by %+v", held.Holder)
	}
	if held.Remaining <= 0 || held.Remaining > time.Minute {
		t.Errorf("told that it is held for %v", held.Remaining)
	}
	if until := time.Until(first.ValidUntil()); until <= 0 || until > time.Minute {
		t.Errorf("valid for %v", until)
	}
	other := suite.Acquire(t, b, "another key")
	suite.Release(t, first)
	if err := first.Release(t.Context()); err != nil {
		t.Errorf("a second release: %v", err)
	}
	if first.Context().Err() == nil || errors.Is(context.Cause(first.Context()), dblock.ErrLost) {
		t.Errorf("a released lock's context: %v", context.Cause(first.Context()))
	}
	second, err := b.TryAcquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if token(t, second) <= token(t, first) {
		t.Errorf("token %d after %d", token(t, second), token(t, first))
	}
	suite.Release(t, second)
	suite.Release(t, other)
}

func excludesWithinAProcess(t *testing.T, v Place) {
	l := v.process(t, LeaseOptions{})
	lock := suite.Acquire(t, l, "k")
	_, err := l.TryAcquire(t.Context(), "k")
	suite.IsHeld(t, err, "k")
	suite.Release(t, lock)
	again, err := l.TryAcquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	suite.Release(t, again)
}

func keepsWhatIsInUse(t *testing.T, v Place) {
	const ttl = 4 * time.Second
	a, b := v.process(t, LeaseOptions{TTL: ttl}), v.process(t, LeaseOptions{})
	lock := suite.Acquire(t, a, "k")
	for end := time.Now().Add(2 * ttl); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		_, err := b.TryAcquire(t.Context(), "k")
		suite.IsHeld(t, err, "k")
	}
	if lock.Context().Err() != nil {
		t.Errorf("lost: %v", context.Cause(lock.Context()))
	}
	suite.Release(t, lock)
}

func endsWhenItsTimeIsUp(t *testing.T, v Place) {
	a, b := v.process(t, LeaseOptions{}), v.process(t, LeaseOptions{})
	capped := suite.Acquire(t, a, "capped", dblock.WithMaxHold(300*time.Millisecond))
	bounded := suite.Acquire(t, a, "bounded")
	if err := bounded.ExpireIn(t.Context(), 300*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	long := suite.Acquire(t, a, "long", dblock.WithMaxHold(time.Hour))
	if err := long.ExpireIn(t.Context(), 2*time.Hour); err != nil || time.Until(long.ValidUntil()) > time.Hour {
		t.Errorf("ExpireIn beyond WithMaxHold: %v, valid until %v", err, long.ValidUntil())
	}
	if _, err := b.TryAcquire(t.Context(), "capped"); err == nil && capped.Context().Err() == nil {
		t.Error("acquired before the time was up")
	}
	for _, lock := range []*dblock.Lock{capped, bounded} {
		next := suite.Acquire(t, b, lock.Key())
		suite.IsLost(t, lock, dblock.Ended)
		suite.Release(t, next)
	}
	if err := bounded.ExpireIn(t.Context(), time.Hour); !errors.Is(err, dblock.ErrLost) {
		t.Errorf("ExpireIn of what was lost: %v", err)
	} else if lost := new(dblock.LostError); !errors.As(err, &lost) || lost.Reason != dblock.Ended {
		t.Errorf("ExpireIn of what has ended: %v", err)
	}
	suite.Release(t, long)
}

func lastsWithoutItsProcess(t *testing.T, v Place) {
	a, b := v.process(t, LeaseOptions{}), v.process(t, LeaseOptions{})
	lock := suite.Acquire(t, a, "k", dblock.WithoutRenewal(1500*time.Millisecond))
	kept := suite.Acquire(t, a, "with the process")
	v.ForgetMembers(t) // the process is dead, as far as anybody can tell
	suite.Release(t, suite.Acquire(t, b, "with the process"))
	if _, err := b.TryAcquire(t.Context(), "k"); !errors.Is(err, dblock.ErrNotAcquired) && time.Now().Before(lock.ValidUntil()) {
		t.Errorf("got %v while it lasts", err)
	}
	next := suite.Acquire(t, b, "k")
	suite.IsLost(t, lock, dblock.Ended)
	suite.Release(t, next)
	_ = kept.Release(t.Context())
}

func takesOverFromTheDead(t *testing.T, v Place) {
	a, b := v.process(t, LeaseOptions{TTL: 10 * time.Second}), v.process(t, LeaseOptions{})
	lock := suite.Acquire(t, a, "k")
	_, err := b.TryAcquire(t.Context(), "k")
	suite.IsHeld(t, err, "k")
	v.ExpireMembers(t)
	next, err := b.TryAcquire(t.Context(), "k")
	if err != nil {
		// b's own member is dead as well: it joins again once it has noticed
		next = suite.Acquire(t, b, "k")
	}
	if token(t, next) <= token(t, lock) {
		t.Errorf("token %d after %d", token(t, next), token(t, lock))
	}
	suite.IsLost(t, lock, dblock.Evicted)
	if next.Context().Err() != nil {
		t.Errorf("the new holder lost it: %v", context.Cause(next.Context()))
	}
	suite.Release(t, next)
}

func aLostMemberLosesAll(t *testing.T, v Place) {
	l := v.process(t, LeaseOptions{TTL: 5 * time.Second})
	var locks []*dblock.Lock
	for i := range 20 {
		locks = append(locks, suite.Acquire(t, l, fmt.Sprint("k", i)))
	}
	v.ForgetMembers(t)
	for _, lock := range locks {
		suite.IsLost(t, lock, dblock.Evicted)
	}
	for _, lock := range locks {
		suite.Release(t, suite.Acquire(t, l, lock.Key()))
	}
}

func closeGivesBack(t *testing.T, v Place) {
	a, b := v.process(t, LeaseOptions{}), v.process(t, LeaseOptions{})
	lock := suite.Acquire(t, a, "k")
	waits := make(chan error, 1)
	blocker := suite.Acquire(t, b, "busy")
	go func() {
		_, err := a.Acquire(context.Background(), "busy")
		waits <- err
	}()
	closed := make(chan error, 1)
	go func() { closed <- a.Close(context.Background()) }()
	suite.IsLost(t, lock, dblock.Closed)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if err := <-waits; !errors.Is(err, dblock.ErrClosed) {
		t.Errorf("a call that waited: %v", err)
	}
	if _, err := a.TryAcquire(t.Context(), "k"); !errors.Is(err, dblock.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	suite.Release(t, suite.Acquire(t, b, "k"))
	suite.Release(t, blocker)
	if n, _, _ := v.Rows(t); n != 1 {
		t.Errorf("%d members, want b's", n)
	}
}
