package lock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// Processes use locks while their server is killed, frozen and cut off from them, answers get lost,
// and unused leases are swept away. In later rounds their members are declared dead as well. A
// model judges the history.

const (
	crashProcesses = 16
	crashTTL       = 2 * time.Second // what is in doubt after a crash is cleared up within three heartbeats
	firstLimit     = 3               // permits that a semaphore begins with
	mostLimit      = 5               // the largest number that it is given
)

// crashTest is what one kind of lock goes through.
type crashTest struct {
	keys   int
	works  suite.What // the steps that show progress
	each   int        // how many of them there are between two strikes, at least
	begin  func(t *testing.T, key string)
	use    func(c *crashCaller) // uses a lock once
	model  func(exclusive bool) suite.State
	forged func(h *suite.History, exclusive bool) map[string][]porcupine.Operation

	whole []dblock.Option // what can be acquired of a key if no caller has anything
}

func keepsItsWordThroughCrashes(t *testing.T, v *env) {
	v.goThroughCrashes(t, func(c *crashes, _ bool) crashTest { return c.updates(true) })
}

// readersAndWritersThroughCrashes has readers look at values under a guard and writers update them,
// some of which give up while they wait.
func readersAndWritersThroughCrashes(t *testing.T, v *env) {
	v.goThroughCrashes(t, func(c *crashes, _ bool) crashTest {
		o := c.updates(true)
		o.keys, o.works, o.each = 4, suite.Read, 20
		o.use, o.forged = (*crashCaller).readOrWrite, (*suite.History).ForgedReads
		return o
	})
}

// permitsThroughCrashes has processes take permits while their number changes. If members are
// declared dead, only permits under a guard have to fit.
func permitsThroughCrashes(t *testing.T, v *env) {
	v.goThroughCrashes(t, func(c *crashes, exclusive bool) crashTest {
		o := crashTest{
			keys: 4, works: suite.Left, each: 20, begin: c.setPermits, use: (*crashCaller).permits,
			model:  func(bool) suite.State { return suite.Permitted{Limit: firstLimit} },
			forged: func(h *suite.History, _ bool) map[string][]porcupine.Operation { return h.ForgedPermits() },
			whole:  []dblock.Option{dblock.WithPermits(firstLimit, firstLimit)},
		}
		if !exclusive {
			o.use = (*crashCaller).guardedPermits
		}
		return o
	})
}

func (v *env) goThroughCrashes(t *testing.T, of func(c *crashes, exclusive bool) crashTest) {
	own, server := v.onAServerOfItsOwn(t)
	strikes, rounds := 3, 2
	if os.Getenv(suite.EnvSoak) != "" {
		strikes, rounds = 10, 20
	}
	n := &suite.FaultInjector{
		DB: own.DB.DB, Kind: v.Kind, Server: server, Counts: map[string]int{},
		Random: rand.New(rand.NewPCG(suite.SeedOf(t), 0)),
	}
	c := own.newCrashes(t)
	for round := range rounds {
		exclusive := round < rounds/2 // a member that is declared dead learns of it a heartbeat later
		o := of(c, exclusive)
		h := c.round(t, fmt.Sprint("round ", round), o, !exclusive, strikes,
			func(ctx context.Context, i int) error { return c.strike(ctx, n, i) })
		t.Logf("members live %v: %v", exclusive, h)
		if !h.IsRight(t, o.model(exclusive)) {
			t.Errorf("members live %v: no lock would have answered so:\n%s", exclusive, h.Wrong(o.model(exclusive)))
			return
		}
		h.ForgeriesAreNoticed(t, o.model(exclusive), o.forged(h, exclusive))
	}
	t.Logf("injected: %v; %d leases were swept away", n.Counts, c.swept.Load())
	o := of(c, true)
	for i := range o.keys {
		key := fmt.Sprint("round 0 ", i)
		if o.whole != nil {
			o.begin(t, key)
		}
		suite.Until(t, key+" is free", func() bool {
			lock, err := c.all[0].Acquire(suite.Soon(t), key, o.whole...)
			if err == nil {
				suite.Release(t, lock)
			}
			require.NoError(t, except(err, dblock.ErrOutcomeUnknown)) // of a connection that was ended
			return err == nil
		})
	}
}

// strike kills the server first, then loses answers, and then does one or the other.
func (c *crashes) strike(ctx context.Context, n *suite.FaultInjector, i int) error {
	switch {
	case i == 0 && n.Server != nil:
		n.Counts["kill -9"]++
		return n.Crash(ctx)
	case i == 1 || i > 2 && n.Random.IntN(4) == 0:
		n.Counts["lose answers"]++
		for _, d := range c.dialers {
			d.Arm(1+n.Random.IntN(8), faultconn.CutAfter, nil)
		}
		return nil
	}
	what, err := n.Strike(ctx)
	n.Counts[what]++
	return err
}

// controlLosesUpdates declares members dead, without the guard.
func controlLosesUpdates(t *testing.T, v *env) {
	c := v.newCrashes(t)
	for try := range 20 {
		h := c.round(t, fmt.Sprint("try ", try), c.updates(false), true, 4,
			func(context.Context, int) error { return nil })
		if t.Log(h); !h.IsRight(t, suite.GuardedValue{}) {
			return
		}
	}
	t.Error("no update was lost: the test with the guard shows nothing")
}

// crashes is processes that outlive what happens to their server.
type crashes struct {
	v       *env
	all     []Leases
	dialers []*faultconn.Dialer
	value   atomic.Int64 // the last one written, of all keys
	swept   atomic.Int64
	limits  sync.Map // of semaphores, as they were last seen
}

func (v *env) newCrashes(t *testing.T) *crashes {
	t.Helper()
	v.Exec(t, "CREATE TABLE guarded (lease_key VARCHAR(100) PRIMARY KEY, n BIGINT)")
	v.Exec(t, "CREATE TABLE seen (id BIGINT PRIMARY KEY, n BIGINT)")
	c := &crashes{v: v}
	for i := range crashProcesses {
		dialer := &faultconn.Dialer{}
		c.dialers = append(c.dialers, dialer)
		o := LeaseOptions{TTL: crashTTL, Poll: 20 * time.Millisecond, Label: fmt.Sprint("process ", i)}
		c.all = append(c.all, v.processOn(t, dialer, o))
	}
	return c
}

// round has all processes use the keys of a round, and strikes each time when enough was done since
// the time before.
func (c *crashes) round(
	t *testing.T, name string, o crashTest, evict bool, strikes int, strike func(ctx context.Context, i int) error,
) *suite.History {
	t.Helper()
	for key := range o.keys {
		o.begin(t, fmt.Sprint(name, " ", key))
	}
	h := &suite.History{Began: time.Now()}
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
	defer stop()
	var work sync.WaitGroup
	for client, l := range c.all {
		work.Go(func() {
			for ctx.Err() == nil {
				o.use(&crashCaller{c, ctx, t, h, client, l, fmt.Sprint(name, " ", rand.N(o.keys))})
			}
		})
	}
	work.Go(func() { c.sweep(ctx) })
	if evict {
		work.Go(func() { c.evict(ctx) })
	}
	for i := range strikes {
		h.Grows(ctx, o.works, o.each)
		assert.NoError(t, strike(ctx, i), "of the fault injector itself")
	}
	h.Grows(ctx, o.works, o.each)
	assert.NoError(t, ctx.Err(), "the work has come to a halt: %v", h)
	stop()
	work.Wait()
	return h
}

// sweep makes what is free look old, and has it swept away. Only when that is done is it made old
// again: what a sweep has seen unused is in use if its row has changed since.
func (c *crashes) sweep(ctx context.Context) {
	for ctx.Err() == nil {
		_, _ = c.v.DB.ExecContext(ctx, "UPDATE dblock_lease SET changed_at = '2000-01-01' WHERE handle IS NULL")
		n, _ := c.all[0].Sweep(ctx)
		c.swept.Add(n)
		time.Sleep(rand.N(50 * time.Millisecond))
	}
}

// evict declares one process after the other dead.
func (c *crashes) evict(ctx context.Context) {
	for ctx.Err() == nil {
		one := fmt.Sprintf("DELETE FROM dblock_member WHERE label = 'process %d'", rand.N(crashProcesses))
		_, _ = c.v.DB.ExecContext(ctx, one)
		time.Sleep(rand.N(20 * time.Millisecond))
	}
}

// updates are of values by one caller at a time, which reads, waits, and writes a value that no
// other caller writes.
func (c *crashes) updates(guard bool) crashTest {
	return crashTest{
		keys: 12, works: suite.Updated, each: 15,
		begin:  func(t *testing.T, key string) { c.v.Exec(t, fmt.Sprintf("INSERT INTO guarded VALUES ('%s', 0)", key)) },
		use:    func(u *crashCaller) { u.update(2*crashTTL, guard) },
		model:  func(exclusive bool) suite.State { return suite.GuardedValue{Exclusive: exclusive} },
		forged: (*suite.History).ForgedUpdates,
	}
}

// setPermits gives a semaphore its first limit.
func (c *crashes) setPermits(t *testing.T, key string) {
	t.Helper()
	suite.Until(t, "the permits of "+key+" are set", func() bool { // a pool may have connections yet that were ended
		return c.all[0].SetPermits(suite.Soon(t), key, firstLimit) == nil
	})
}
