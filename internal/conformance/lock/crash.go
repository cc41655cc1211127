package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
)

const (
	crashProcesses = 16
	crashKeys      = 12              // that are for writers alone
	sharedKeys     = 4               // where several are to meet
	crashTTL       = 2 * time.Second // what is in doubt after a crash is cleared up within three heartbeats
	crashStrikes   = 3               // in a round of a short run
	soakStrikes    = 10
	crashUpdates   = 15 // between two of them, at least
)

// crashTest is what one kind of lock goes through.
type crashTest struct {
	keys  int
	works suite.What // the steps that show that work goes on
	each  int        // how many of them there are between two strikes, at least
	begin func(t *testing.T, key string)
	model func(exclusive bool) suite.State

	// use is one use of a lock: it notes what it asked for and what it was told.
	use    func(ctx context.Context, t *testing.T, h *suite.History, client int, l Leases, key string)
	forged func(h *suite.History, exclusive bool) map[string][]porcupine.Operation

	// whole is how a key is acquired that nobody else has anything of.
	whole func(t *testing.T, l Leases, key string) []dblock.Option
}

// keepsItsWordThroughCrashes has processes update values under locks while their server is killed, frozen and cut
// off from them, and unused leases are swept away: tokens only grow, no two hold a lock at once, and no update is lost.
// In later rounds their members are declared dead as well: no update is lost then either.
func keepsItsWordThroughCrashes(t *testing.T, v *env) {
	v.goThroughCrashes(t, func(c *crashes, _ bool) crashTest { return c.updates(true) })
}

// goThroughCrashes has processes use locks while all that happens.
func (v *env) goThroughCrashes(t *testing.T, of func(c *crashes, exclusive bool) crashTest) {
	own, server := v.onAServerOfItsOwn(t)
	strikes, rounds := crashStrikes, 2
	if os.Getenv(suite.EnvSoak) != "" {
		strikes, rounds = soakStrikes, 20
	}
	n := &suite.FaultInjector{
		DB: own.db, Kind: v.e.Kind, Server: server, Counts: map[string]int{},
		Random: rand.New(rand.NewPCG(suite.SeedOf(t), 0)),
	}
	c := own.newCrashes(t)
	for round := range rounds {
		exclusive := round < rounds/2 // whoever was declared dead learns of it a heartbeat later
		o := of(c, exclusive)
		h := c.round(t, fmt.Sprint("round ", round), o, !exclusive, strikes, func(ctx context.Context, i int) error { return c.strike(ctx, n, i) })
		t.Logf("members live %v: %v", exclusive, h)
		if !h.IsRight(t, o.model(exclusive)) {
			t.Errorf("members live %v: no lock would have answered so:\n%s", exclusive, h.Wrong(o.model(exclusive)))
			return
		}
		h.ForgeriesAreNoticed(t, o.model(exclusive), o.forged(h, exclusive))
	}
	t.Logf("injected: %v; %d leases were swept away; answers %v", n.Counts, c.swept.Load(), c.answers)
	o := of(c, true)
	for key := range o.keys {
		c.isFree(t, fmt.Sprint("round 0 ", key), o.whole)
	}
}

// strike kills the server first, then has answers get lost, and then does one thing or another.
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

// controlLosesUpdates is the same without the guard.
func controlLosesUpdates(t *testing.T, v *env) {
	c := v.newCrashes(t)
	for try := range 20 {
		h := c.round(t, fmt.Sprint("try ", try), c.updates(false), true, 4, func(context.Context, int) error { return nil })
		t.Log(h)
		if !h.IsRight(t, suite.GuardedValue{}) {
			return
		}
	}
	t.Error("no update was lost: the test with the guard shows nothing")
}

// isFree fails where a key is held by nobody. The pool may have connections yet that were ended.
func (c *crashes) isFree(t *testing.T, key string, whole func(*testing.T, Leases, string) []dblock.Option) {
	t.Helper()
	for {
		lock, err := c.all[0].Acquire(suite.Soon(t), key, whole(t, c.all[0], key)...)
		if err == nil {
			suite.Release(t, lock)
			return
		}
		if !errors.Is(err, dblock.ErrOutcomeUnknown) {
			t.Errorf("%q at the end: %v", key, err)
			return
		}
	}
}

// crashes is processes that outlive what happens to their server.
type crashes struct {
	v       *env
	all     []Leases
	dialers []*faultconn.Dialer
	value   atomic.Int64 // the last one written, of all keys
	swept   atomic.Int64
	limits  sync.Map // of semaphores, as they were last seen

	mu      sync.Mutex
	answers map[string]int
}

func (v *env) newCrashes(t *testing.T) *crashes {
	t.Helper()
	v.exec(t, "CREATE TABLE guarded (lease_key VARCHAR(100) PRIMARY KEY, n BIGINT)")
	v.exec(t, "CREATE TABLE seen (id BIGINT PRIMARY KEY, n BIGINT)")
	c := &crashes{v: v, answers: map[string]int{}}
	for i := range crashProcesses {
		dialer := &faultconn.Dialer{}
		c.dialers = append(c.dialers, dialer)
		on := Place{LeasePlace: cutVault{v, dialer}}
		c.all = append(c.all, on.process(t, LeaseOptions{TTL: crashTTL, Poll: 20 * time.Millisecond, Label: fmt.Sprint("process ", i)}))
	}
	return c
}

// cutVault opens processes on a dialer that strikes.
type cutVault struct {
	*env
	dialer *faultconn.Dialer
}

func (v cutVault) OpenLeases(ctx context.Context, o LeaseOptions) (Leases, func(), error) {
	return v.e.OpenOn(ctx, v.dsn, v.dialer, o)
}

// round has all processes work under the keys of a round, while it is struck so often: each time when enough was
// done since the time before.
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
				o.use(ctx, t, h, client, l, fmt.Sprint(name, " ", rand.N(o.keys)))
			}
		})
	}
	work.Go(func() { c.sweep(ctx) })
	if evict {
		work.Go(func() { c.evict(ctx) })
	}
	for i := range strikes {
		h.Grows(ctx, o.works, o.each)
		if err := strike(ctx, i); err != nil {
			t.Errorf("the fault injector itself failed: %v", err)
		}
	}
	h.Grows(ctx, o.works, o.each)
	if ctx.Err() != nil {
		t.Errorf("the work has come to a halt: %v", h)
	}
	stop()
	work.Wait()
	return h
}

// updates are of values by one at a time, which reads, takes its time, and writes what nobody else writes.
func (c *crashes) updates(guard bool) crashTest {
	return crashTest{
		keys: crashKeys, works: suite.Updated, each: crashUpdates,
		begin: c.guards, model: func(exclusive bool) suite.State { return suite.GuardedValue{Exclusive: exclusive} },
		use: func(ctx context.Context, t *testing.T, h *suite.History, client int, l Leases, key string) {
			c.update(ctx, t, h, client, l, key, 2*crashTTL, guard)
		},
		forged: (*suite.History).ForgedUpdates,
		whole:  func(*testing.T, Leases, string) []dblock.Option { return nil },
	}
}

// guards makes the value of a key.
func (c *crashes) guards(t *testing.T, key string) {
	t.Helper()
	c.v.exec(t, fmt.Sprintf("INSERT INTO guarded VALUES ('%s', 0)", key))
}

func (c *crashes) update(ctx context.Context, t *testing.T, h *suite.History, client int, l Leases, key string, patience time.Duration, guard bool) {
	c.hold(ctx, t, h, client, l, suite.Step{Key: key}, patience, func(lock *dblock.Lock) { c.write(ctx, h, client, l, lock, guard) })
}

// hold is one use of a lock, from when it is asked for till it is given back.
func (c *crashes) hold(
	ctx context.Context, t *testing.T, h *suite.History, client int, l Leases, s suite.Step, patience time.Duration, use func(*dblock.Lock), opts ...dblock.Option,
) {
	waits, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	asked := h.Now()
	lock, err := l.Acquire(waits, s.Key, opts...)
	c.answered(t, err)
	if err != nil {
		time.Sleep(rand.N(10 * time.Millisecond))
		return
	}
	got := h.Now()
	f, _ := lock.Fence()
	s.Token = f.Token
	note := func(w suite.What, from, to int64) {
		s.What = w
		h.Note(client, from, to, s)
	}
	if s.Mode == dblock.Permits {
		note(suite.Believed, asked, got)
	}
	note(suite.Granted, asked, got)
	use(lock)
	leaves := h.Now()
	if lock.Context().Err() != nil || time.Now().After(lock.ValidUntil()) {
		leaves = got // it was lost at some time, and others may have had it since
	}
	if err := lock.Release(ctx); err != nil && !errors.Is(err, dblock.ErrLost) {
		t.Errorf("release of %q: %v", s.Key, err)
	}
	note(suite.Left, leaves, h.Now())
}

func (c *crashes) write(ctx context.Context, h *suite.History, client int, l Leases, lock *dblock.Lock, guard bool) {
	f, _ := lock.Fence()
	s := suite.Step{What: suite.Updated, Key: f.Key, Token: f.Token, Now: c.value.Add(1)}
	where := fmt.Sprintf(" WHERE lease_key = '%s'", f.Key)
	began := h.Now()
	if err := c.v.db.QueryRowContext(ctx, "SELECT n FROM guarded"+where).Scan(&s.Was); err != nil {
		return
	}
	time.Sleep(rand.N(20 * time.Millisecond))
	statement := fmt.Sprintf("UPDATE guarded SET n = %d", s.Now) + where
	var err error
	if guard {
		err = c.v.e.Guarded(ctx, l, lock, statement, func() {})
	} else {
		_, err = c.v.db.ExecContext(context.WithoutCancel(ctx), statement)
	}
	switch {
	case err == nil:
		h.Note(client, began, h.Now(), s)
	case !guard || errors.Is(err, dblock.ErrOutcomeUnknown):
		s.What = suite.Unknown
		h.Note(client, began, suite.Never, s)
	} // any other error says that nothing was written
}

// answered notes what an acquisition was told, and fails one that has no kind.
func (c *crashes) answered(t *testing.T, err error) {
	kind := "an error of no kind"
	for _, allowed := range []error{dblock.ErrOutcomeUnknown, dblock.ErrNotAcquired, dblock.ErrBusy, dblock.ErrUnavailable, dblock.ErrLimit} {
		if errors.Is(err, allowed) {
			kind = allowed.Error()
			break
		}
	}
	if err == nil {
		kind = "acquired"
	} else if kind == "an error of no kind" {
		t.Errorf("%s: %v", kind, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers[kind]++
}

// sweep makes what is free look old, and has it swept away. Only when that is done is it made old again: what a sweep
// has seen unused is in use where its row has changed since.
func (c *crashes) sweep(ctx context.Context) {
	for ctx.Err() == nil {
		_, _ = c.v.db.ExecContext(ctx, "UPDATE dblock_lease SET changed_at = '2000-01-01' WHERE handle IS NULL")
		n, _ := c.all[0].Sweep(ctx)
		c.swept.Add(n)
		time.Sleep(rand.N(50 * time.Millisecond))
	}
}

// evict declares one process after the other dead, whatever it is doing.
func (c *crashes) evict(ctx context.Context) {
	for ctx.Err() == nil {
		_, _ = c.v.db.ExecContext(ctx, fmt.Sprintf("DELETE FROM dblock_member WHERE label = 'process %d'", rand.N(crashProcesses)))
		time.Sleep(rand.N(20 * time.Millisecond))
	}
}
