package session

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// aDeadOneIsFreedAtOnce closes the connections of a process, as its death does: no idle time-out
// passes.
func aDeadOneIsFreedAtOnce(t *testing.T, s *env) {
	var dialer faultconn.Dialer
	a, b := s.processOn(t, &dialer, SessionOptions{IdleTimeout: time.Hour}), s.process(t, SessionOptions{})
	lock := suite.Acquire(t, a, "k")
	dialer.CloseAll()
	suite.IsFree(t, b, "k")
	if s.Postgres() { // its connection is listened to; elsewhere the next ping would tell
		suite.IsLost(t, lock, dblock.Disconnected)
	} else {
		_ = lock.Release(t.Context())
	}
}

// aLostLockIsNotReleased ends the connection of a holder and has another process take the lock. The
// holder releases before its process can notice the loss by itself: Release says that the lock was
// lost, with and without waiters of the same process.
func aLostLockIsNotReleased(t *testing.T, s *env) {
	modes := [][]dblock.Option{nil}
	if s.Postgres() {
		modes = append(modes, []dblock.Option{dblock.WithShared()})
	}
	for _, mode := range modes {
		for _, waiters := range []int{0, 3} {
			a, b := s.process(t, quick), s.process(t, quick)
			for range 5 {
				s.loseAndRelease(t, a, b, waiters, mode...)
			}
		}
	}
}

func (s *env) loseAndRelease(t *testing.T, a, b dblock.Locker, crowd int, mode ...dblock.Option) {
	t.Helper()
	lock := suite.Acquire(t, a, "k", mode...)
	ctx, stop := context.WithCancel(suite.Soon(t))
	var waiters sync.WaitGroup
	for range crowd {
		waiters.Go(func() {
			if next, err := a.Acquire(ctx, "k", mode...); err == nil {
				_ = next.Release(context.WithoutCancel(ctx))
			}
		})
	}
	s.takenFromHolder(t, b, lock)
	stop()
	waiters.Wait()
}

// takenFromHolder ends the connection that has k, and fails unless each release of it says that the
// lock was lost.
func (s *env) takenFromHolder(t *testing.T, b dblock.Locker, locks ...*dblock.Lock) {
	t.Helper()
	s.endHolder(t, "k")
	theirs := suite.Acquire(t, b, "k")
	for _, lock := range locks {
		assert.ErrorIs(t, lock.Release(t.Context()), dblock.ErrLost, "another process has the lock")
	}
	suite.Release(t, theirs)
}

func aLostLockInLineIsNotReleased(t *testing.T, s *env) {
	a, b := s.process(t, SessionOptions{ServerQueue: true}), s.process(t, quick)
	s.takenFromHolder(t, b, s.servedAtServer(t, b, a))
}

func lostReadersAreNotReleased(t *testing.T, s *env) {
	a, b := s.process(t, SessionOptions{}), s.process(t, quick)
	var readers []*dblock.Lock
	for range 3 {
		readers = append(readers, suite.Acquire(t, a, "k", dblock.WithShared()))
	}
	s.takenFromHolder(t, b, readers...)
}

// noHandOverWhenDead ends the connection of a process whose callers hand a lock over, and has
// another process take the lock. Until that one releases it the first process begins no critical
// section, but for one that was granted before.
func noHandOverWhenDead(t *testing.T, s *env) {
	var ours sections
	a, b := s.process(t, quick), s.process(t, quick)
	ctx, stop := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			for ctx.Err() == nil {
				if lock, err := a.Acquire(ctx, "k"); err == nil {
					ours.add(holdFor(t, lock, time.Millisecond))
				}
			}
		})
	}
	var theirs []section
	for range 5 {
		want := ours.len() + 10
		suite.Until(t, "callers have the lock", func() bool { return ours.len() >= want })
		suite.Until(t, "the server has ended the holder", func() bool {
			id := s.holder(t, "k")
			return id != 0 && s.EndSession(t.Context(), id, false) == nil
		})
		theirs = append(theirs, holdFor(t, suite.Acquire(t, b, "k"), 50*time.Millisecond))
	}
	stop()
	callers.Wait()
	for _, one := range theirs {
		begun, kept := ours.beside(one)
		assert.LessOrEqual(t, begun, 1, "sections begun while another process had the lock")
		assert.Zero(t, kept, "releases without an error")
	}
	forged := sections{all: []section{theirs[0], theirs[0]}} // the control
	begun, kept := forged.beside(theirs[0])
	assert.Equal(t, []int{2, 2}, []int{begun, kept})
}

// interruptedHandOvers interrupts the statements of a session while its callers hand locks over and
// another process asks for the same locks. No answer of the server may end the process, and all
// callers make progress.
func interruptedHandOvers(t *testing.T, s *env) {
	for name, o := range map[string]SessionOptions{"polling": quick, "at the server": atServer} {
		a, b := s.process(t, o), s.process(t, o)
		var had atomic.Int64
		s.interrupt(t, a, name+" kept", func(ctx context.Context) {
			suite.Crowd(12, func(i int) {
				l := a
				if i%4 == 3 {
					l = b
				}
				for ctx.Err() == nil {
					lock, err := l.Acquire(ctx, fmt.Sprint(name, i%2))
					if err == nil {
						time.Sleep(rand.N(200 * time.Microsecond))
						err = lock.Release(context.WithoutCancel(ctx))
					}
					if err == nil {
						had.Add(1)
					} else if ctx.Err() == nil && !isDoubt(err) {
						assert.NoError(t, err)
					}
				}
			})
		}, &had)
	}
}

// isDoubt tells that a statement was interrupted.
func isDoubt(err error) bool {
	return errors.Is(err, dblock.ErrBusy) || errors.Is(err, dblock.ErrUnavailable) || errors.Is(err, dblock.ErrLost)
}

// interrupt interrupts the statements of a process's session again and again, while calls run that
// count their locks and end with their context. Another lock of the session lives on.
func (s *env) interrupt(t *testing.T, l dblock.Locker, key string, calls func(ctx context.Context), had *atomic.Int64) {
	t.Helper()
	kept := suite.Acquire(t, l, key)
	id := s.holder(t, key)
	ctx, stop := context.WithCancel(suite.Soon(t))
	var interrupts sync.WaitGroup
	interrupts.Go(func() {
		for n := 0; n < 200 || had.Load() < 100 && ctx.Err() == nil; n++ {
			_ = s.EndSession(ctx, id, true)
			time.Sleep(rand.N(4 * time.Millisecond))
			for before := had.Load(); n%20 == 0 && had.Load() == before && ctx.Err() == nil; {
				time.Sleep(time.Millisecond) // a connection that answers nothing but errors for a second is closed
			}
		}
		stop()
	})
	calls(ctx)
	interrupts.Wait()
	assert.GreaterOrEqual(t, had.Load(), int64(100), "calls make progress")
	assert.NoError(t, context.Cause(kept.Context()), "another lock of the session")
	assert.Equal(t, id, s.holder(t, key))
	suite.Release(t, kept)
}

// doubtEndsNoOtherLock acquires and releases while the statements are interrupted. Each lock that
// is granted is one that no other process can have, and in the end none is left.
func doubtEndsNoOtherLock(t *testing.T, s *env) {
	a, other := s.process(t, SessionOptions{}), s.process(t, SessionOptions{})
	var had atomic.Int64
	s.interrupt(t, a, "kept", func(ctx context.Context) {
		for n := 0; ctx.Err() == nil; n++ {
			key := fmt.Sprint("k", n%7)
			lock, err := a.TryAcquire(t.Context(), key)
			if errors.Is(err, dblock.ErrBusy) || errors.Is(err, dblock.ErrUnavailable) {
				continue
			}
			require.NoError(t, err)
			had.Add(1)
			if n%10 == 0 {
				suite.IsTaken(t, other, key)
			}
			suite.Release(t, lock)
		}
	}, &had)
}

// aKilledSessionIsLost has the server end the connection that many locks share: all of them are
// lost, on Postgres because the connection says so, elsewhere by a ping. Locks can be had again.
func aKilledSessionIsLost(t *testing.T, s *env) {
	idle := time.Hour
	if !s.Postgres() {
		idle = 3 * time.Second
	}
	l := s.process(t, SessionOptions{IdleTimeout: idle})
	for n := range 5 { // a busy machine may be late, and not always
		var locks []*dblock.Lock
		for i := range 10 {
			locks = append(locks, suite.Acquire(t, l, fmt.Sprint(n, " ", i)))
		}
		began := time.Now()
		s.endHolder(t, locks[0].Key())
		for _, lock := range locks {
			suite.IsLost(t, lock, dblock.Disconnected)
		}
		took := time.Since(began)
		suite.IsFree(t, l, locks[0].Key())
		if took < idle {
			return
		}
	}
	t.Errorf("never lost before the idle time-out of %v", idle)
}
