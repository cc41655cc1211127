package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// pollsLate is of processes that learn of a release in time only by a notification.
var pollsLate = SessionOptions{Poll: time.Minute}

// isHeardOf releases a lock, and fails unless a waiter that polls late has it soon.
func isHeardOf(t *testing.T, lock *dblock.Lock, waiter func() *dblock.Lock) {
	t.Helper()
	began := time.Now()
	suite.Release(t, lock)
	suite.Release(t, waiter())
	assert.Less(t, time.Since(began), 30*time.Second, "until the waiter heard of the release")
}

// ALeaverIsNoTrouble has the first waiter give up: the next one is notified, and gets the lock.
func (tests) ALeaverIsNoTrouble(t *testing.T, s *env) {
	a, b := s.process(t, SessionOptions{}), s.process(t, pollsLate)
	lock := suite.Acquire(t, a, "k")
	ctx, giveUp := context.WithCancel(suite.Soon(t))
	gone := waiting(ctx, b, "k")
	s.untilWaiters(t, "k", 1)
	next := suite.Waiter(t, b, "k")
	giveUp()
	suite.IsHeld(t, gone(), "k")
	s.untilWaiters(t, "k", 1)
	isHeardOf(t, lock, next)
}

// ServedInLine: the server's queue serves its waiters in order, whatever process they are of.
func (tests) ServedInLine(t *testing.T, s *env) {
	const calls = 9
	var procs []dblock.Locker
	for range 3 {
		procs = append(procs, s.process(t, SessionOptions{ServerQueue: true, MaxConns: calls}))
	}
	lock := suite.Acquire(t, procs[0], "k")
	served := make(chan int, calls)
	var waits sync.WaitGroup
	for i := range calls {
		waits.Go(func() {
			lock, err := procs[i%3].Acquire(suite.Soon(t), "k")
			served <- i
			if assert.NoError(t, err) {
				suite.Release(t, lock)
			}
		})
		s.untilAtServer(t, int64(i+1))
	}
	suite.Release(t, lock)
	waits.Wait()
	var order []int
	for range calls {
		order = append(order, <-served)
	}
	assert.True(t, slices.IsSorted(order), "served in the order %v", order)
}

// LeavesTheLine has a call give up at the server: the next one is served. More calls than there may
// be connections are refused.
func (tests) LeavesTheLine(t *testing.T, s *env) {
	a := s.process(t, SessionOptions{})
	b := s.process(t, SessionOptions{ServerQueue: true, MaxConns: 3}) // one is shared
	lock := suite.Acquire(t, a, "k")
	ctx, giveUp := context.WithCancel(suite.Soon(t))
	gone := waiting(ctx, b, "k")
	s.untilAtServer(t, 1)
	next := suite.Waiter(t, b, "k")
	s.untilAtServer(t, 2)
	assert.ErrorIs(t, suite.Second(b.Acquire(t.Context(), "k")), dblock.ErrOverloaded, "without a connection to wait on")
	suite.IsFree(t, b, "another key")
	giveUp()
	assert.ErrorIs(t, suite.IsHeld(t, gone(), "k"), context.Canceled)
	s.untilAtServer(t, 1)
	suite.Release(t, lock)
	suite.Release(t, next())
	suite.IsFree(t, a, "k")
}

// servedAtServer returns a lock of b's that was waited for at the server.
func (s *env) servedAtServer(t *testing.T, a, b dblock.Locker) *dblock.Lock {
	t.Helper()
	lock := suite.Acquire(t, a, "k")
	next := suite.Waiter(t, b, "k")
	s.untilAtServer(t, 1)
	suite.Release(t, lock)
	return next()
}

func (tests) TheLineEndsWithConns(t *testing.T, s *env) {
	a, b := s.process(t, SessionOptions{}), s.process(t, SessionOptions{ServerQueue: true, IdleTimeout: 9 * time.Second})
	other := suite.Acquire(t, b, "other")
	waited := s.servedAtServer(t, a, b)
	s.endHolder(t, "k")
	suite.IsLost(t, waited, dblock.ReasonDisconnected)
	assert.NoError(t, other.Context().Err(), "another lock of the process")
	suite.Release(t, other)
	suite.IsFree(t, b, "k")
}

// TheServerQueueWaitsOn ends the connection and the statement of a call that waits at the server,
// more often than a call that fails tries again.
func (tests) TheServerQueueWaitsOn(t *testing.T, s *env) {
	a, b := s.process(t, SessionOptions{}), s.process(t, SessionOptions{ServerQueue: true})
	lock := suite.Acquire(t, a, "k")
	next := suite.Waiter(t, b, "k")
	var id, last int64
	for n := range 6 {
		suite.Until(t, "the call waits on another connection", func() bool {
			id = s.Count(t, s.atServer("max"))
			return id != 0 && id != last
		})
		last = id
		_ = s.EndSession(t.Context(), id, n%2 == 0)
	}
	s.untilAtServer(t, 1)
	suite.Release(t, lock)
	suite.Release(t, next())
}

// takeMany acquires the keys k0, k1, k2 …
func takeMany(t *testing.T, l dblock.Locker, n int) []*dblock.Lock {
	t.Helper()
	locks, errs := make([]*dblock.Lock, n), make([]error, n)
	suite.Crowd(n, func(i int) { locks[i], errs[i] = l.Acquire(suite.Soon(t), fmt.Sprint("k", i)) })
	require.NoError(t, errors.Join(errs...))
	return locks
}

// closeMany closes a process with all that it has, which takes less time than its releases.
func closeMany(t *testing.T, l dblock.Locker, locks []*dblock.Lock) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = l.Close(ctx)
	for _, lock := range locks {
		assert.ErrorIs(t, lock.Release(t.Context()), dblock.ErrLost)
	}
}

// ManyLocksFewConns has one process hold 5,000 locks at once, on a few connections.
func (tests) ManyLocksFewConns(t *testing.T, s *env) {
	const many = 5000
	l := s.process(t, SessionOptions{})
	locks := takeMany(t, l, many)
	if s.Postgres() {
		assert.GreaterOrEqual(t, s.Count(t, "SELECT count(*)"+advisory), int64(many))
		assert.LessOrEqual(t, s.Count(t, "SELECT count(DISTINCT pid)"+advisory), int64(4))
	}
	assert.NotZero(t, s.holder(t, "k0"))
	assert.NotZero(t, s.holder(t, "k4999"))
	other := s.process(t, SessionOptions{}) // the server can hold more locks
	suite.IsTaken(t, other, "k0")
	suite.IsFree(t, other, "another")
	closeMany(t, l, locks)
}

// MoreThanItMay acquires locks until a process may hold no more. The next call returns an error
// that says so. No lock ends.
func (tests) MoreThanItMay(t *testing.T, s *env) {
	l := s.process(t, SessionOptions{MaxConns: 1})
	most := 10_000
	if s.Postgres() {
		most = int(s.Count(t, "SELECT current_setting('max_locks_per_transaction')::int * "+
			"(current_setting('max_connections')::int + current_setting('max_prepared_transactions')::int) / 5"))
	}
	locks := takeMany(t, l, most)
	for range 3 {
		assert.ErrorIs(t, suite.Second(l.Acquire(suite.Soon(t), "one more")), dblock.ErrOverloaded, "beyond %d locks", most)
	}
	suite.Release(t, locks[0])
	locks[0] = suite.Acquire(t, l, "one more")
	for _, lock := range locks {
		require.NoError(t, lock.Context().Err(), lock.Key())
	}
	closeMany(t, l, locks)
}
