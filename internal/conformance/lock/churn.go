package lock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// Churn: callers with deadlines of 0.05 to 100 ms acquire and release. Most deadlines end while a
// statement is under way, and the caller never learns what that statement did. Afterwards no key
// may stay held, and the process may keep nothing. A process of its own runs the churn, so that its
// goroutines and its heap are those of the Locker alone.

const (
	churnTTL  = 10 * time.Minute // the next heartbeat is too late to free anything
	churnFree = 30 * time.Second // a key is free so soon after the last call

	churnConns = 8       // a pool's connections come and go, and may have a goroutine each
	churnHeap  = 4 << 20 // a runtime keeps some room of what was larger
)

// churnReport is what the process says of its churn.
type churnReport struct {
	Acquired, Unknown, Other                            int64
	First, Last                                         int64 // acquired in the first and the last third, or 10 s
	GoroutinesBefore, GoroutinesAfter, GoroutinesClosed int   // after: with the Locker open
	HeapBefore, HeapAfter                               uint64
}

func aChurnLeavesNothing(t *testing.T, v *env)     { v.churn(t, churns) }
func aFairChurnLeavesNothing(t *testing.T, v *env) { v.churn(t, churnsFairly) }

// churnFor returns how long a churn lasts.
func churnFor() (d time.Duration, soak bool) {
	switch lasts, err := time.ParseDuration(os.Getenv(suite.EnvSoak)); {
	case err == nil:
		return lasts, true
	case os.Getenv(suite.EnvSoak) != "":
		return 2 * time.Minute, true
	default:
		return 1500 * time.Millisecond, false
	}
}

func (v *env) churn(t *testing.T, mode string) {
	c := v.startHolder(t, t.Context(), mode)
	c.Says(t, "silent")
	assert.Empty(t, v.untilNothingHeld(t, churnFree))
	_ = c.In.Close() // it is to close its Locker
	require.True(t, c.Lines.Scan(), "the process ended without a report")
	var r churnReport
	require.NoError(t, json.Unmarshal(c.Lines.Bytes(), &r))
	t.Logf("%+v", r)
	assert.NotZero(t, r.Acquired)
	assert.NotZero(t, r.Unknown)
	assert.Zero(t, r.Other)
	assert.LessOrEqual(t, r.GoroutinesAfter, r.GoroutinesBefore+churnConns)
	assert.LessOrEqual(t, r.GoroutinesClosed, 1)
	assert.LessOrEqual(t, r.HeapAfter, r.HeapBefore+churnHeap)
	if _, soak := churnFor(); soak {
		assert.Greater(t, float64(r.Last), 0.7*float64(r.First))
	}
	members, _, waiters := v.Rows(t)
	assert.Zero(t, members+waiters)
	connections := "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE()"
	if v.Postgres() {
		connections = `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND backend_type = 'client backend'`
	}
	suite.Until(t, "only the test's connections are left", func() bool {
		return v.Count(t, connections) == int64(v.DB.Stats().OpenConnections)
	})
}

// untilNothingHeld waits until the tables hold nothing, and returns what they do if that takes too
// long.
func (v *env) untilNothingHeld(t *testing.T, within time.Duration) (left string) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		held := v.Count(t, "SELECT count(*) FROM dblock_lease WHERE handle IS NOT NULL")
		readers := v.Count(t, "SELECT count(*) FROM dblock_reader")
		permits := v.Count(t, "SELECT count(*) FROM dblock_permit WHERE handle IS NOT NULL")
		tickets := int64(v.Tickets(t)) // one that was served may stay for the sweeper
		_, _, waiters := v.Rows(t)
		if held+readers+permits+tickets+int64(waiters) == 0 {
			return ""
		}
		if time.Since(began) > within {
			return fmt.Sprintf("%d leases, %d readers, %d permits, %d tickets, %d waiters",
				held, readers, permits, tickets, waiters)
		}
	}
}

// churner is the callers of a churn.
type churner struct {
	l      dblock.Locker
	fair   bool
	mu     sync.Mutex
	report churnReport
}

// churn is what the process does.
func (e Lease) churn(ctx context.Context, dsn string, fair bool) error {
	d, soak := churnFor()
	o := LeaseOptions{TTL: churnTTL, Fair: fair}
	if soak {
		o.TTL = 0
	}
	l, closePool, err := e.Open(ctx, dsn, o)
	if err != nil {
		return err
	}
	c := churner{l: l, fair: fair}
	c.run(d / 20) // what the first calls make for good is not counted
	time.Sleep(time.Second)
	c.report = churnReport{}
	r := &c.report
	r.GoroutinesBefore, r.HeapBefore = settled(math.MaxInt)
	for c.run(d); !soak && (r.Acquired == 0 || r.Unknown == 0); { // no call may be in time at first
		c.run(d)
	}
	fmt.Println("silent")
	suite.WaitToGoOn()
	r.GoroutinesAfter, r.HeapAfter = settled(r.GoroutinesBefore + churnConns)
	if err := l.Close(ctx); err != nil {
		return err
	}
	closePool()
	r.GoroutinesClosed, _ = settled(1)
	return json.NewEncoder(os.Stdout).Encode(r)
}

// settled counts goroutines, which may take a moment to end, and the heap.
func settled(goroutines int) (int, uint64) {
	for began := time.Now(); runtime.NumGoroutine() > goroutines && time.Since(began) < 30*time.Second; {
		time.Sleep(10 * time.Millisecond)
	}
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return runtime.NumGoroutine(), stats.HeapAlloc
}

func (c *churner) run(d time.Duration) {
	began := time.Now()
	suite.Crowd(50, func(n int) {
		for time.Since(began) < d {
			c.call(n, began, d)
		}
	})
}

// call is one caller's: the nth takes part in one mode.
func (c *churner) call(n int, began time.Time, d time.Duration) {
	key, opts := fmt.Sprint("key ", rand.N(10_000)), []dblock.Option(nil)
	switch {
	case c.fair:
		key = fmt.Sprint("key ", rand.N(20))
	case n%10 == 8:
		key, opts = fmt.Sprint("key ", rand.N(20)), []dblock.Option{dblock.WithShared()}
	case n%10 == 9:
		key, opts = fmt.Sprint("permits ", rand.N(20)), []dblock.Option{dblock.WithPermits(1+rand.N(3), 5)}
	}
	acquire := c.l.TryAcquire
	if rand.N(2) == 0 {
		acquire = c.l.Acquire
	}
	within := time.Duration(float64(50*time.Microsecond) * math.Exp(rand.Float64()*math.Log(2000))) // to 100 ms
	ctx, cancel := context.WithTimeout(context.Background(), within)
	lock, err := acquire(ctx, key, opts...)
	cancel()
	c.note(err, time.Since(began), d)
	if lock != nil {
		_ = lock.Release(context.Background())
	}
}

func (c *churner) note(err error, at, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, part := &c.report, min(d/3, 10*time.Second)
	switch {
	case err == nil:
		r.Acquired++
		if at < part {
			r.First++
		}
		if at >= d-part {
			r.Last++
		}
	case errors.Is(err, dblock.ErrOutcomeUnknown):
		r.Unknown++
	case except(err, dblock.ErrNotAcquired, dblock.ErrBusy, context.DeadlineExceeded) != nil:
		r.Other++
		fmt.Fprintln(os.Stderr, "churn:", err)
	}
}

// frozenWithin is how long a call may take while the server is frozen. A call that waits for the
// server's answer waits for half of the TTL.
const frozenWithin = 30 * time.Second

// aFrozenServerHoldsNoCaller freezes the server while locks are held. All is free soon after it
// answers again.
func aFrozenServerHoldsNoCaller(t *testing.T, v *env) {
	own, server := v.onAServerOfItsOwn(t)
	if server == nil {
		return // it was given, and may serve others
	}
	l := own.processOn(t, &faultconn.Dialer{}, LeaseOptions{TTL: churnTTL})
	locks := make([]*dblock.Lock, 50)
	for i := range locks {
		locks[i] = suite.Acquire(t, l, fmt.Sprint("key ", i))
	}
	require.NoError(t, server.Freeze())
	inTime := func(what string, call func()) {
		began := time.Now()
		call()
		assert.LessOrEqual(t, time.Since(began), frozenWithin, what)
	}
	inTime("a release", func() { _ = locks[0].Release(t.Context()) })
	inTime("releases", func() { suite.Crowd(49, func(i int) { _ = locks[1+i].Release(t.Context()) }) })
	for _, try := range []bool{true, false} {
		acquire := l.Acquire
		if try {
			acquire = l.TryAcquire
		}
		inTime("an acquisition", func() {
			ctx, cancel := context.WithTimeout(t.Context(), suite.FrozenDeadline)
			defer cancel()
			assert.Error(t, suite.Second(acquire(ctx, "another")))
		})
	}
	require.NoError(t, server.Thaw())
	assert.Empty(t, own.untilNothingHeld(t, churnFree))
	assert.NoError(t, l.Close(suite.Soon(t)))
}

// aCloseOfAFrozenServer closes a Locker with locks in use. The process leaves in the background.
func aCloseOfAFrozenServer(t *testing.T, v *env) {
	own, server := v.onAServerOfItsOwn(t)
	if server == nil {
		return // it was given, and may serve others
	}
	for name, within := range map[string]time.Duration{"an ended context": -1, "a short one": suite.FrozenDeadline} {
		l, end, err := own.OpenLeases(t.Context(), LeaseOptions{TTL: time.Hour})
		require.NoError(t, err)
		for i := range 3 {
			suite.Acquire(t, l, fmt.Sprint("key ", i))
		}
		require.NoError(t, server.Freeze())
		ctx, cancel := context.WithTimeout(t.Context(), within)
		began := time.Now()
		assert.Error(t, l.Close(ctx), name)
		assert.LessOrEqual(t, time.Since(began), frozenWithin, name)
		cancel()
		require.NoError(t, server.Thaw())
		own.Until(t, suite.Members, 0)
		end()
	}
}
