package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// frozenIdle is after how long the server frees what a frozen process has.
const frozenIdle = 2 * time.Second

// ABlackHoleIsFreed takes the network away without a word, on both sides or from the server to the
// client: another process has the lock soon, and by then its holder does not count on it any more.
func (faultTests) ABlackHoleIsFreed(t *testing.T, s *env) {
	var dialer faultconn.Dialer
	l := s.processOn(t, &dialer, SessionOptions{IdleTimeout: frozenIdle})
	other := s.process(t, quick)
	for _, mode := range []faultconn.Mode{faultconn.Stall, faultconn.Late} {
		lock := suite.Acquire(t, l, "k")
		dialer.Arm(1, mode, nil)
		next := suite.Acquire(t, other, "k")
		assert.False(t, time.Now().Before(lock.ValidUntil()), "%v: another process has it while it is valid", mode)
		suite.IsLost(t, lock, dblock.ReasonDisconnected)
		suite.Release(t, next)
		dialer.Disarm()
		dialer.Release()
	}
}

// ASilentServerKeepsNoCaller has the network fall silent. A call ends with its deadline, and a
// release soon: it says that the lock may have been lost. Without bounds of their own both would
// wait for half of the idle time-out.
func (faultTests) ASilentServerKeepsNoCaller(t *testing.T, s *env) {
	const idle, soon = 4 * time.Minute, 30 * time.Second
	var dialer faultconn.Dialer
	l := s.processOn(t, &dialer, SessionOptions{IdleTimeout: idle})
	held := suite.Acquire(t, l, "held")
	for range 3 { // the connection has answered just now
		suite.IsFree(t, l, "k")
	}
	dialer.Arm(1, faultconn.Stall, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := l.TryAcquire(ctx, "k")
	assert.Less(t, time.Since(began), soon)
	assert.ErrorIs(t, suite.IsHeld(t, err, "k"), context.DeadlineExceeded)
	began = time.Now()
	assert.ErrorIs(t, held.Release(t.Context()), dblock.ErrLost)
	assert.Less(t, time.Since(began), soon)
	dialer.Disarm()
	dialer.CloseAll()
}

// childEnv is what a test has a process do, as JSON.
const childEnv = "DBLOCK_TEST_SESSION"

// counting is a process that counts on a key.
type counting struct {
	DSN, Key string
	Options  SessionOptions
}

// Main does the work of a child process, and then never returns. Call it first in TestMain.
func (e Session) Main() {
	text := os.Getenv(childEnv)
	if text == "" {
		return
	}
	var c counting
	err := json.Unmarshal([]byte(text), &c)
	if err == nil {
		var l dblock.Locker
		if l, _, err = e.Open(context.Background(), c.DSN, nil, c.Options); err == nil {
			err = suite.CountOn(context.Background(), l, c.Key)
		}
	}
	fmt.Fprintln(os.Stderr, "session:", err)
	os.Exit(1)
}

// ADeadOneIsFreedAtOnce closes the connections of a process, as its death does: no idle time-out
// passes.
func (tests) ADeadOneIsFreedAtOnce(t *testing.T, s *env) {
	var dialer faultconn.Dialer
	a, b := s.processOn(t, &dialer, SessionOptions{IdleTimeout: time.Hour}), s.process(t, SessionOptions{})
	lock := suite.Acquire(t, a, "k")
	dialer.CloseAll()
	suite.IsFree(t, b, "k")
	if s.Postgres() { // its connection is listened to; elsewhere the next ping fails
		suite.IsLost(t, lock, dblock.ReasonDisconnected)
	} else {
		_ = lock.Release(t.Context())
	}
}

// ALostLockIsNotReleased ends the connection of a holder and has another process take the lock. The
// holder releases before its process can notice the loss by itself: Release says that it was lost.
func (tests) ALostLockIsNotReleased(t *testing.T, s *env) {
	b := s.process(t, quick)
	lose := func(locks ...*dblock.Lock) {
		t.Helper()
		s.endHolder(t, "k")
		theirs := suite.Acquire(t, b, "k")
		for _, lock := range locks {
			assert.ErrorIs(t, lock.Release(t.Context()), dblock.ErrLost, "another process has the lock")
		}
		suite.Release(t, theirs)
	}
	a := s.process(t, quick)
	for range 5 {
		lose(suite.Acquire(t, a, "k"))
	}
	lose(s.servedAtServer(t, b, s.process(t, SessionOptions{ServerQueue: true})))
	if s.Postgres() {
		shared := dblock.WithShared()
		lose(suite.Acquire(t, a, "k", shared), suite.Acquire(t, a, "k", shared), suite.Acquire(t, a, "k", shared))
	}
}

// InterruptedHandOvers interrupts the statements of a session while its callers hand locks over and
// another process asks for the same locks. No answer of the server may end the process, and all
// callers make progress.
func (tests) InterruptedHandOvers(t *testing.T, s *env) {
	for name, o := range map[string]SessionOptions{"polling": quick, "at the server": atServer} {
		a, b := s.process(t, o), s.process(t, o)
		var had atomic.Int64
		s.interrupt(t, a, name+" kept", func(ctx context.Context) {
			suite.Crowd(12, func(i int) {
				l := []dblock.Locker{a, a, a, b}[i%4]
				for ctx.Err() == nil {
					lock, err := l.Acquire(ctx, fmt.Sprint(name, i%2))
					if err == nil {
						time.Sleep(rand.N(200 * time.Microsecond))
						err = lock.Release(context.WithoutCancel(ctx))
					}
					if err == nil {
						had.Add(1)
					} else if ctx.Err() == nil && !errors.Is(err, dblock.ErrBusy) && !errors.Is(err, dblock.ErrUnavailable) && !errors.Is(err, dblock.ErrLost) {
						assert.NoError(t, err)
					}
				}
			})
		}, &had)
	}
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
		for n, calm := 0, time.Now(); n < 200 || had.Load() < 100 && ctx.Err() == nil; n++ {
			_ = s.EndSession(ctx, id, true)
			time.Sleep(rand.N(4 * time.Millisecond))
			for time.Since(calm) > 50*time.Millisecond && ctx.Err() == nil {
				// a session that answers with errors for a second is closed
				if lock, err := l.TryAcquire(ctx, key+" asks"); err == nil && lock.Release(ctx) == nil {
					calm = time.Now()
				}
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

// AKilledSessionIsLost has the server end the connection that many locks share: all of them are
// lost, on Postgres because the connection says so, elsewhere by a ping. Locks can be had again.
func (faultTests) AKilledSessionIsLost(t *testing.T, s *env) {
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
			suite.IsLost(t, lock, dblock.ReasonDisconnected)
		}
		took := time.Since(began)
		suite.IsFree(t, l, locks[0].Key())
		if took < idle {
			return
		}
	}
	t.Errorf("never lost before the idle time-out of %v", idle)
}
