package session

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// cancelsRaceGrants has callers give up in the moment in which they may be granted the lock, and
// release under contexts that have ended. In the end the server has no lock, as after every test of
// the suite.
func cancelsRaceGrants(t *testing.T, s *env) {
	const callers = 8
	trials := 2_000
	if os.Getenv(suite.EnvSoak) != "" {
		trials = 10_000
	}
	var granted, gaveUp atomic.Int64
	o := SessionOptions{Poll: 10 * time.Millisecond}
	procs := []dblock.Locker{s.process(t, o), s.process(t, o)}
	suite.Crowd(callers, func(c int) {
		for i := range trials / callers {
			ctx, cancel := context.WithCancel(t.Context())
			timer := time.AfterFunc(rand.N(2*time.Millisecond), cancel)
			lock, err := procs[c%2].Acquire(ctx, fmt.Sprint("k", i%3))
			cancel()
			timer.Stop()
			if err == nil {
				granted.Add(1)
				assert.NoError(t, lock.Release(ctx))
				continue
			}
			gaveUp.Add(1)
			assert.ErrorIs(t, err, dblock.ErrNotAcquired)
			assert.ErrorIs(t, err, context.Canceled)
		}
	})
	assert.NotZero(t, granted.Load(), "granted")
	assert.NotZero(t, gaveUp.Load(), "given up")
}

// controlCancelsLeak does the same as it is often written by hand: a connection of the pool, the
// server's function, and a deferred release under the same context.
func controlCancelsLeak(t *testing.T, s *env) {
	pool := suite.OpenDB(t, s.Kind, s.DSN)
	lock, unlock := "SELECT GET_LOCK('naive', 1)", "SELECT RELEASE_LOCK('naive')"
	left := "SELECT IS_USED_LOCK('naive') IS NOT NULL"
	if s.Postgres() {
		lock, unlock, left = "SELECT pg_advisory_lock(7)", "SELECT pg_advisory_unlock(7)", "SELECT count(*)"+advisory+" AND granted"
	}
	for range 1000 {
		ctx, cancel := context.WithCancel(t.Context())
		naiveOnce(ctx, cancel, pool.DB, lock, unlock)
		if s.Count(t, left) > 0 {
			_ = pool.Close() // which ends what was left
			return
		}
	}
	t.Error("no lock was left: the test of the session locks shows nothing")
}

func naiveOnce(ctx context.Context, cancel func(), db *sql.DB, lock, unlock string) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	defer time.AfterFunc(rand.N(2*time.Millisecond), cancel).Stop()
	var got any
	if err := conn.QueryRowContext(ctx, lock).Scan(&got); err != nil {
		return
	}
	cancel()
	_ = conn.QueryRowContext(ctx, unlock).Scan(&got)
}

// aReleaseBesideTheDead releases under a context that has ended, beside a caller that waits.
func aReleaseBesideTheDead(t *testing.T, s *env) {
	l := s.process(t, SessionOptions{})
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 {
		lock := suite.Acquire(t, l, "k")
		next := suite.Waiter(t, l, "k")
		assert.NoError(t, lock.Release(dead))
		suite.Release(t, next())
	}
	err := suite.Second(l.Acquire(dead, "k"))
	assert.ErrorIs(t, err, context.Canceled)
	assert.ErrorIs(t, err, dblock.ErrNotAcquired)
}

// frozenIdle is after how long the server frees what a frozen process has.
const frozenIdle = 2 * time.Second

// aFrozenHolderIsFreed stops the process that has the lock: the server frees it, and when the
// process goes on it never counts on the lock again.
func aFrozenHolderIsFreed(t *testing.T, s *env) {
	other := s.process(t, quick)
	c := suite.StartChild(t, s.e.toCountOn(exec.CommandContext(suite.Soon(t), os.Args[0]), s.DSN, "k", SessionOptions{IdleTimeout: frozenIdle}))
	defer c.Kill()
	c.Held(t)
	time.Sleep(frozenIdle / 2) // it has pinged
	require.NoError(t, suite.Suspend(c.Process))
	next := suite.Acquire(t, other, "k")
	got := suite.Uptime()
	require.NoError(t, suite.Resume(c.Process))
	last, _ := c.Counted(t, &dblock.LostError{Key: "k", Reason: dblock.Disconnected})
	assert.LessOrEqual(t, last, got, "it counted on the lock after another process had it")
	suite.Release(t, next)
}

// aBlackHoleIsFreed takes the network away without a word, on both sides or from the server to the
// client: another process has the lock soon, and by then its holder does not count on it any more.
func aBlackHoleIsFreed(t *testing.T, s *env) {
	var dialer faultconn.Dialer
	l := s.processOn(t, &dialer, SessionOptions{IdleTimeout: frozenIdle})
	other := s.process(t, quick)
	for _, mode := range []faultconn.Mode{faultconn.Stall, faultconn.Late} {
		lock := suite.Acquire(t, l, "k")
		dialer.Arm(1, mode, nil)
		next := suite.Acquire(t, other, "k")
		assert.False(t, time.Now().Before(lock.ValidUntil()), "%v: another process has it while it is valid", mode)
		suite.IsLost(t, lock, dblock.Disconnected)
		suite.Release(t, next)
		dialer.Disarm()
		dialer.Release()
	}
}

// aSilentServerKeepsNoCaller has the network fall silent. A call ends with its deadline, and a
// release soon: it says that the lock may have been lost. Without bounds of their own both would
// wait for half of the idle time-out.
func aSilentServerKeepsNoCaller(t *testing.T, s *env) {
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

const (
	childDSN  = "DBLOCK_TEST_SESSION"
	childKind = "DBLOCK_TEST_SESSION_KIND"
	childKey  = "DBLOCK_TEST_SESSION_KEY"
	childIdle = "DBLOCK_TEST_SESSION_IDLE"
	childLine = "DBLOCK_TEST_SESSION_LINE" // set: it waits at the server
)

// Main does what a test has started this process for, and then never returns. Call it first in
// TestMain.
func (e Session) Main() {
	if dsn := os.Getenv(childDSN); dsn != "" {
		e.Kind = devdb.Kind(os.Getenv(childKind))
		fmt.Fprintln(os.Stderr, "session:", e.countOn(dsn))
		os.Exit(1)
	}
}

func (e Session) countOn(dsn string) error {
	ctx := context.Background()
	idle, err := time.ParseDuration(os.Getenv(childIdle))
	l, _, openErr := e.Open(ctx, dsn, nil, SessionOptions{IdleTimeout: idle, ServerQueue: os.Getenv(childLine) != ""})
	if err := errors.Join(err, openErr); err != nil {
		return err
	}
	return suite.CountOn(ctx, l, os.Getenv(childKey))
}

// toCountOn has the process of a command count on a key, with the IdleTimeout and the ServerQueue
// of the options.
func (e Session) toCountOn(cmd *exec.Cmd, dsn, key string, o SessionOptions) *exec.Cmd {
	cmd.Env = append(os.Environ(), childDSN+"="+dsn, childKind+"="+string(e.Kind), childKey+"="+key, childIdle+"="+o.IdleTimeout.String())
	if o.ServerQueue {
		cmd.Env = append(cmd.Env, childLine+"=1")
	}
	return cmd
}
