package session

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
)

// aKilledSessionIsLost has the server end the connection that many locks share: all of them are lost soon, and locks can
// be had again.
func aKilledSessionIsLost(t *testing.T, s *env) {
	const idle = 3 * time.Second
	within := idle/3 + 500*time.Millisecond
	if s.e.Kind == devdb.Postgres { // it says so
		within = 100 * time.Millisecond
	}
	l := s.process(t, SessionOptions{IdleTimeout: idle})
	var fastest time.Duration
	for n := range 5 { // a busy machine may be late, and not always
		var locks []*dblock.Lock
		for i := range 10 {
			locks = append(locks, suite.Acquire(t, l, fmt.Sprint(n, " ", i)))
		}
		began := time.Now()
		if err := s.end(t.Context(), s.holder(t, locks[0].Key()), false); err != nil {
			t.Fatal(err)
		}
		for _, lock := range locks {
			suite.IsLost(t, lock, dblock.Disconnected)
		}
		if took := time.Since(began); n == 0 || took < fastest {
			fastest = took
		}
		suite.Release(t, suite.Acquire(t, l, locks[0].Key()))
		if fastest <= within {
			return
		}
	}
	t.Errorf("lost after %v, want %v", fastest, within)
}

// waitersOutliveASession ends the connection of a process that waits: it goes on to wait on another one, and hears there of
// the release.
func waitersOutliveASession(t *testing.T, s *env) {
	a, b := s.process(t, SessionOptions{}), s.process(t, SessionOptions{Poll: time.Minute, IdleTimeout: 3 * time.Second})
	lock, mine := suite.Acquire(t, a, "k"), suite.Acquire(t, b, "mine")
	got := make(chan *dblock.Lock, 1)
	go func() { got <- suite.Acquire(t, b, "k") }()
	s.someoneWaits(t, "k")
	if err := s.end(t.Context(), s.holder(t, "mine"), false); err != nil {
		t.Fatal(err)
	}
	suite.IsLost(t, mine, dblock.Disconnected)
	began := time.Now()
	s.someoneWaits(t, "k")
	suite.Release(t, lock)
	suite.Release(t, <-got)
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it heard of the release after %v", took)
	}
}

// doubtEndsNoOtherLock interrupts the statements of a session again and again, while it holds a lock that nobody asks about:
// that one lives on, every other one that is granted is had, and in the end none is left over.
func doubtEndsNoOtherLock(t *testing.T, s *env) {
	a, b := s.process(t, SessionOptions{}), s.process(t, SessionOptions{})
	kept := suite.Acquire(t, a, "kept")
	id := s.holder(t, "kept")
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Second)
	defer stop()
	interrupted := make(chan int)
	var calls atomic.Int64
	go func() {
		n := 0
		for ; ctx.Err() == nil; n++ {
			_ = s.end(ctx, id, true)
			time.Sleep(rand.N(4 * time.Millisecond))
			for returned := calls.Load(); n%20 == 0 && calls.Load() == returned && ctx.Err() == nil; {
				time.Sleep(time.Millisecond) // a connection that answers nothing but errors for a second is closed
			}
		}
		interrupted <- n
	}()
	refused, had := s.takeWhileInterrupted(t, ctx, a, b, &calls)
	t.Logf("%d interrupts: %d locks were had, %d calls were refused", <-interrupted, had, refused)
	if had == 0 {
		t.Error("nothing was had: this test shows nothing")
	}
	if kept.Context().Err() != nil || s.holder(t, "kept") != id {
		t.Errorf("the other lock has ended: %v", context.Cause(kept.Context()))
	}
	suite.Release(t, kept)
}

// takeWhileInterrupted takes and gives back locks until ctx ends, and counts its calls. Each that is granted is one that nobody else can have.
func (s *env) takeWhileInterrupted(t *testing.T, ctx context.Context, a, other dblock.Locker, calls *atomic.Int64) (refused, had int) {
	t.Helper()
	for n := 0; ctx.Err() == nil; n++ {
		calls.Add(1)
		key := fmt.Sprint("k", n%7)
		lock, err := a.TryAcquire(t.Context(), key)
		if errors.Is(err, dblock.ErrBusy) || errors.Is(err, dblock.ErrUnavailable) {
			refused++
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		had++
		if n%10 == 0 {
			_, err = other.TryAcquire(t.Context(), key)
			suite.IsHeld(t, err, key)
		}
		suite.Release(t, lock)
	}
	return refused, had
}
