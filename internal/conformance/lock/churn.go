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
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
)

// Churn: callers with deadlines of 0.05 to 100 ms acquire and release. Most deadlines end while a
// statement is under way, and the caller never learns what that statement did. Afterwards no key may
// stay held, and the process may keep nothing. The checker is the server's own tables. A process of its
// own runs the churn, so that its goroutines and its heap are those of the Locker alone.

const (
	churnCallers = 50
	churnKeys    = 10_000
	churnTime    = 1500 * time.Millisecond
	churnRuns    = 20 // at most, in the short form
	churnSoak    = 2 * time.Minute

	// churnTTL makes the next heartbeat too late to free anything in the short form.
	churnTTL = time.Minute

	// A key is free so soon after the last call. A busy machine gets longer in the short form.
	churnFree      = 2 * time.Second
	churnFreeShort = 10 * time.Second

	churnConns  = 8       // a pool's connections come and go, and may have a goroutine each
	churnHeap   = 4 << 20 // a runtime keeps some room of what was larger
	churnSteady = 0.7     // throughput at the end, of that at the beginning
)

// churnReport is what the process says of its churn.
type churnReport struct {
	Calls, Acquired, Unknown, Refused, Other int64
	First, Last                              int64         // acquired in the first and the last part
	Latest                                   time.Duration // by which a call returned after its deadline at most
	GoroutinesBefore                         int
	GoroutinesAfter                          int // after the silence, with the Locker open
	GoroutinesClosed                         int
	HeapBefore, HeapAfter                    uint64
}

// aChurnLeavesNothing: after a churn all keys are free, and no row, goroutine or connection is left.
func aChurnLeavesNothing(t *testing.T, v *env) { v.churn(t, churns) }

// aFairChurnLeavesNothing is the same where callers wait with tickets.
func aFairChurnLeavesNothing(t *testing.T, v *env) { v.churn(t, churnsFairly) }

// churnFor returns how long a churn lasts; soak says that DBLOCK_SOAK is set.
func churnFor() (d time.Duration, soak bool) {
	switch lasts, err := time.ParseDuration(os.Getenv(suite.EnvSoak)); {
	case err == nil:
		return lasts, true
	case os.Getenv(suite.EnvSoak) != "":
		return churnSoak, true
	default:
		return churnTime, false
	}
}

func (v *env) churn(t *testing.T, mode string) {
	d, soak := churnFor()
	within := churnFreeShort
	if soak {
		within = churnFree
	}
	ctx, cancel := context.WithTimeout(t.Context(), d+time.Minute)
	defer cancel()
	c := v.startHolder(t, ctx, mode)
	defer c.Kill()
	c.Says(t, "silent")
	silent := time.Now()
	left := v.untilNothingHeld(t, within)
	took := time.Since(silent)
	if left != "" {
		t.Errorf("%v after the churn %s", took.Round(time.Millisecond), left)
	}
	_ = c.In.Close() // it is to close its Locker
	if !c.Lines.Scan() {
		t.Fatal("the process ended without a report")
	}
	var r churnReport
	if err := json.Unmarshal(c.Lines.Bytes(), &r); err != nil {
		t.Fatalf("%v in %q", err, c.Lines.Text())
	}
	t.Logf("free after %v: %+v", took.Round(time.Millisecond), r)
	r.check(t, soak)
	if members, _, waiters := v.Rows(t); members+waiters != 0 {
		t.Errorf("rows left: %d members, %d waiters", members, waiters)
	}
	for ctx := suite.Soon(t); v.strangers(t) > 0; {
		if !suite.SleepFor(ctx, 10*time.Millisecond) {
			t.Fatalf("connections are left")
		}
	}
}

func (r churnReport) check(t *testing.T, soak bool) {
	t.Helper()
	if r.Acquired == 0 || r.Unknown == 0 {
		t.Errorf("acquired %d, unknown %d: the churn shows nothing", r.Acquired, r.Unknown)
	}
	if r.Other != 0 {
		t.Errorf("%d other errors", r.Other)
	}
	if r.GoroutinesAfter > r.GoroutinesBefore+churnConns || r.GoroutinesClosed > 1 {
		t.Errorf("goroutines: %d before, %d after, %d closed", r.GoroutinesBefore, r.GoroutinesAfter, r.GoroutinesClosed)
	}
	if r.HeapAfter > r.HeapBefore+churnHeap {
		t.Errorf("heap: %d before, %d after", r.HeapBefore, r.HeapAfter)
	}
	if soak && float64(r.Last) < churnSteady*float64(r.First) {
		t.Errorf("acquired %d at first, %d at last", r.First, r.Last)
	}
}

// untilNothingHeld waits until the tables hold nothing, and says what they do where that takes too long.
func (v *env) untilNothingHeld(t *testing.T, within time.Duration) string {
	t.Helper()
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		held := v.count(t, "SELECT count(*) FROM dblock_lease WHERE handle IS NOT NULL")
		readers := v.count(t, "SELECT count(*) FROM dblock_reader")
		permits := v.count(t, "SELECT count(*) FROM dblock_permit WHERE handle IS NOT NULL")
		tickets := int64(v.Tickets(t)) // one that was served may stay for the sweeper
		waiters := v.count(t, "SELECT count(*) FROM dblock_lease_waiter")
		if held+readers+permits+tickets+waiters == 0 {
			return ""
		}
		if time.Since(began) > within {
			return fmt.Sprintf("there are %d leases, %d readers, %d permits, %d tickets, %d waiters", held, readers, permits, tickets, waiters)
		}
	}
}

// strangers counts the connections to the database that are not the test's own.
func (v *env) strangers(t *testing.T) int64 {
	t.Helper()
	all := "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE()"
	if v.e.Kind == devdb.Postgres {
		all = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"
	}
	return v.count(t, all) - int64(v.db.Stats().OpenConnections)
}

// churnAsTold is what the process does.
func (e Lease) churnAsTold(dsn, mode string) error {
	d, soak := churnFor()
	o := LeaseOptions{TTL: churnTTL, Fair: mode == churnsFairly}
	if soak {
		o.TTL = 0
	}
	ctx := context.Background()
	l, closePool, err := e.Open(ctx, dsn, o)
	if err != nil {
		return err
	}
	c := churner{l: l, fair: o.Fair, part: min(d/3, 10*time.Second)}
	c.run(d / 20) // what the first calls make for good is not counted
	time.Sleep(time.Second)
	var r churnReport
	r.GoroutinesBefore, r.HeapBefore = settled(math.MaxInt)
	c.count = churnCount{}
	for n := 0; n == 0 || n < churnRuns && !soak && (c.count.acquired.Load() == 0 || c.count.unknown.Load() == 0); n++ {
		c.run(d) // on a very busy machine no call may be in time at first
	}
	fmt.Println("silent")
	suite.WaitToGoOn()
	r.GoroutinesAfter, r.HeapAfter = settled(r.GoroutinesBefore + churnConns)
	if err := l.Close(ctx); err != nil {
		return err
	}
	closePool()
	r.GoroutinesClosed, _ = settled(1)
	c.count.into(&r)
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	fmt.Println(string(line))
	return nil
}

// settled counts goroutines, which may take a moment to end, and the heap.
func settled(goroutines int) (int, uint64) {
	for began := time.Now(); runtime.NumGoroutine() > goroutines && time.Since(began) < 20*time.Second; {
		time.Sleep(10 * time.Millisecond)
	}
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return runtime.NumGoroutine(), stats.HeapAlloc
}

// churner is the callers of a churn.
type churner struct {
	l     dblock.Locker
	fair  bool
	part  time.Duration
	count churnCount
}

type churnCount struct {
	calls, acquired, unknown, refused, other, first, last, latest atomic.Int64
}

func (c *churnCount) into(r *churnReport) {
	r.Calls, r.Acquired, r.Unknown, r.Refused, r.Other = c.calls.Load(), c.acquired.Load(), c.unknown.Load(), c.refused.Load(), c.other.Load()
	r.First, r.Last, r.Latest = c.first.Load(), c.last.Load(), time.Duration(c.latest.Load())
}

func (c *churner) run(d time.Duration) {
	began := time.Now()
	var all sync.WaitGroup
	for n := range churnCallers {
		all.Go(func() {
			for time.Since(began) < d {
				c.call(n, began, d)
			}
		})
	}
	all.Wait()
}

// call is one caller's: the nth takes part in one mode.
func (c *churner) call(n int, began time.Time, d time.Duration) {
	key, opts := fmt.Sprint("key ", rand.N(churnKeys)), []dblock.Option(nil)
	switch {
	case c.fair:
		key = fmt.Sprint("key ", rand.N(20))
	case n%10 == 8:
		key, opts = fmt.Sprint("key ", rand.N(20)), []dblock.Option{dblock.WithShared()}
	case n%10 == 9:
		key, opts = fmt.Sprint("permits ", rand.N(20)), []dblock.Option{dblock.WithPermits(1+rand.N(3), 5)}
	}
	how := c.l.TryAcquire
	if rand.N(2) == 0 {
		how = c.l.Acquire
	}
	within := time.Duration(float64(50*time.Microsecond) * math.Exp(rand.Float64()*math.Log(2000))) // to 100 ms
	ctx, cancel := context.WithTimeout(context.Background(), within)
	deadline := time.Now().Add(within)
	lock, err := how(ctx, key, opts...)
	cancel()
	c.note(lock, err, time.Since(deadline), time.Since(began), d)
	if lock != nil {
		_ = lock.Release(context.Background())
	}
}

func (c *churner) note(lock *dblock.Lock, err error, late, at, d time.Duration) {
	c.count.calls.Add(1)
	for before := c.count.latest.Load(); int64(late) > before && !c.count.latest.CompareAndSwap(before, int64(late)); {
		before = c.count.latest.Load()
	}
	switch {
	case lock != nil:
		c.count.acquired.Add(1)
		if at < c.part {
			c.count.first.Add(1)
		}
		if at >= d-c.part {
			c.count.last.Add(1)
		}
	case errors.Is(err, dblock.ErrOutcomeUnknown):
		c.count.unknown.Add(1)
	case errors.Is(err, dblock.ErrNotAcquired), errors.Is(err, dblock.ErrBusy), errors.Is(err, context.DeadlineExceeded):
		c.count.refused.Add(1)
	default:
		c.count.other.Add(1)
		fmt.Fprintln(os.Stderr, "churn:", err)
	}
}
