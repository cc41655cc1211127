package conformance

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

// ordeal is what one kind of lock goes through.
type ordeal struct {
	keys  int
	works what // the steps that show that work goes on
	each  int  // how many of them there are between two strikes, at least
	begin func(t *testing.T, key string)
	model func(exclusive bool) state

	// use is one use of a lock: it notes what it asked for and what it was told.
	use    func(ctx context.Context, t *testing.T, h *history, client int, l Leases, key string)
	forged func(h *history, exclusive bool) map[string][]porcupine.Operation

	// whole is how a key is acquired that nobody else has anything of.
	whole func(t *testing.T, l Leases, key string) []dblock.Option
}

// keepsItsWordThroughCrashes has processes update values under locks while their server is killed, frozen and cut
// off from them, and unused leases are swept away: tokens only grow, no two hold a lock at once, and no update is lost.
// In later rounds their members are declared dead as well: no update is lost then either.
func keepsItsWordThroughCrashes(t *testing.T, v *vault) {
	v.goThroughCrashes(t, func(c *crashes, _ bool) ordeal { return c.updates(true) })
}

// goThroughCrashes has processes use locks while all that happens.
func (v *vault) goThroughCrashes(t *testing.T, of func(c *crashes, exclusive bool) ordeal) {
	own, server := v.onAServerOfItsOwn(t)
	strikes, rounds := crashStrikes, 2
	if os.Getenv(envSoak) != "" {
		strikes, rounds = soakStrikes, 20
	}
	n := &nemesis{
		db: own.db, kind: v.e.Kind, server: server, did: map[string]int{},
		random: rand.New(rand.NewPCG(seedOf(t), 0)),
	}
	c := own.newCrashes(t)
	for round := range rounds {
		exclusive := round < rounds/2 // whoever was declared dead learns of it a heartbeat later
		o := of(c, exclusive)
		h := c.round(t, fmt.Sprint("round ", round), o, !exclusive, strikes, func(ctx context.Context, i int) error { return c.strike(ctx, n, i) })
		t.Logf("members live %v: %v", exclusive, h)
		if !h.isRight(t, o.model(exclusive)) {
			t.Errorf("members live %v: no lock would have answered so:\n%s", exclusive, h.wrong(o.model(exclusive)))
			return
		}
		h.forgeriesAreNoticed(t, o.model(exclusive), o.forged(h, exclusive))
	}
	t.Logf("the nemesis did %v; %d leases were swept away; answers %v", n.did, c.swept.Load(), c.answers)
	o := of(c, true)
	for key := range o.keys {
		c.isFree(t, fmt.Sprint("round 0 ", key), o.whole)
	}
}

// strike kills the server first, then has answers get lost, and then does one thing or another.
func (c *crashes) strike(ctx context.Context, n *nemesis, i int) error {
	switch {
	case i == 0 && n.server != nil:
		n.did["kill -9"]++
		return n.crash(ctx)
	case i == 1 || i > 2 && n.random.IntN(4) == 0:
		n.did["lose answers"]++
		for _, d := range c.dialers {
			d.Arm(1+n.random.IntN(8), faultconn.CutAfter, nil)
		}
		return nil
	}
	what, err := n.strike(ctx)
	n.did[what]++
	return err
}

// controlLosesUpdates is the same without the guard.
func controlLosesUpdates(t *testing.T, v *vault) {
	c := v.newCrashes(t)
	for try := range 20 {
		h := c.round(t, fmt.Sprint("try ", try), c.updates(false), true, 4, func(context.Context, int) error { return nil })
		t.Log(h)
		if !h.isRight(t, guardedValue{}) {
			return
		}
	}
	t.Error("no update was lost: the test with the guard shows nothing")
}

// isFree fails where a key is held by nobody. The pool may have connections yet that were ended.
func (c *crashes) isFree(t *testing.T, key string, whole func(*testing.T, Leases, string) []dblock.Option) {
	t.Helper()
	for {
		lock, err := c.all[0].Acquire(soon(t), key, whole(t, c.all[0], key)...)
		if err == nil {
			release(t, lock)
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
	v       *vault
	all     []Leases
	dialers []*faultconn.Dialer
	value   atomic.Int64 // the last one written, of all keys
	swept   atomic.Int64
	limits  sync.Map // of semaphores, as they were last seen

	mu      sync.Mutex
	answers map[string]int
}

func (v *vault) newCrashes(t *testing.T) *crashes {
	t.Helper()
	v.exec(t, "CREATE TABLE guarded (lease_key VARCHAR(100) PRIMARY KEY, n BIGINT)")
	v.exec(t, "CREATE TABLE seen (id BIGINT PRIMARY KEY, n BIGINT)")
	c := &crashes{v: v, answers: map[string]int{}}
	for i := range crashProcesses {
		dialer := &faultconn.Dialer{}
		c.dialers = append(c.dialers, dialer)
		on := place{LeasePlace: cutVault{v, dialer}}
		c.all = append(c.all, on.process(t, LeaseOptions{TTL: crashTTL, Poll: 20 * time.Millisecond, Label: fmt.Sprint("process ", i)}))
	}
	return c
}

// cutVault opens processes on a dialer that strikes.
type cutVault struct {
	*vault
	dialer *faultconn.Dialer
}

func (v cutVault) OpenLeases(ctx context.Context, o LeaseOptions) (Leases, func(), error) {
	return v.e.OpenOn(ctx, v.dsn, v.dialer, o)
}

// round has all processes work under the keys of a round, while it is struck so often: each time when enough was
// done since the time before.
func (c *crashes) round(
	t *testing.T, name string, o ordeal, evict bool, strikes int, strike func(ctx context.Context, i int) error,
) *history {
	t.Helper()
	for key := range o.keys {
		o.begin(t, fmt.Sprint(name, " ", key))
	}
	h := &history{began: time.Now()}
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
		h.grows(ctx, o.works, o.each)
		if err := strike(ctx, i); err != nil {
			t.Errorf("the nemesis itself failed: %v", err)
		}
	}
	h.grows(ctx, o.works, o.each)
	if ctx.Err() != nil {
		t.Errorf("the work has come to a halt: %v", h)
	}
	stop()
	work.Wait()
	return h
}

// grows waits for so many more steps of a kind.
func (h *history) grows(ctx context.Context, w what, n int) {
	for until := h.count(w) + n; h.count(w) < until && ctx.Err() == nil; {
		time.Sleep(5 * time.Millisecond)
	}
}

// updates are of values by one at a time, which reads, takes its time, and writes what nobody else writes.
func (c *crashes) updates(guard bool) ordeal {
	return ordeal{
		keys: crashKeys, works: updated, each: crashUpdates,
		begin: c.guards, model: func(exclusive bool) state { return guardedValue{exclusive: exclusive} },
		use: func(ctx context.Context, t *testing.T, h *history, client int, l Leases, key string) {
			c.update(ctx, t, h, client, l, key, 2*crashTTL, guard)
		},
		forged: (*history).forgedUpdates,
		whole:  func(*testing.T, Leases, string) []dblock.Option { return nil },
	}
}

// guards makes the value of a key.
func (c *crashes) guards(t *testing.T, key string) {
	t.Helper()
	c.v.exec(t, fmt.Sprintf("INSERT INTO guarded VALUES ('%s', 0)", key))
}

func (c *crashes) update(ctx context.Context, t *testing.T, h *history, client int, l Leases, key string, patience time.Duration, guard bool) {
	c.hold(ctx, t, h, client, l, step{key: key}, patience, func(lock *dblock.Lock) { c.write(ctx, h, client, l, lock, guard) })
}

// hold is one use of a lock, from when it is asked for till it is given back.
func (c *crashes) hold(
	ctx context.Context, t *testing.T, h *history, client int, l Leases, s step, patience time.Duration, use func(*dblock.Lock), opts ...dblock.Option,
) {
	waits, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	asked := h.now()
	lock, err := l.Acquire(waits, s.key, opts...)
	c.answered(t, err)
	if err != nil {
		time.Sleep(rand.N(10 * time.Millisecond))
		return
	}
	got := h.now()
	f, _ := lock.Fence()
	s.token = f.Token
	note := func(w what, from, to int64) {
		s.what = w
		h.note(client, from, to, s)
	}
	if s.mode == dblock.Permits {
		note(believed, asked, got)
	}
	note(granted, asked, got)
	use(lock)
	leaves := h.now()
	if lock.Context().Err() != nil || time.Now().After(lock.ValidUntil()) {
		leaves = got // it was lost at some time, and others may have had it since
	}
	if err := lock.Release(ctx); err != nil && !errors.Is(err, dblock.ErrLost) {
		t.Errorf("release of %q: %v", s.key, err)
	}
	note(left, leaves, h.now())
}

func (c *crashes) write(ctx context.Context, h *history, client int, l Leases, lock *dblock.Lock, guard bool) {
	f, _ := lock.Fence()
	s := step{what: updated, key: f.Key, token: f.Token, now: c.value.Add(1)}
	where := fmt.Sprintf(" WHERE lease_key = '%s'", f.Key)
	began := h.now()
	if err := c.v.db.QueryRowContext(ctx, "SELECT n FROM guarded"+where).Scan(&s.was); err != nil {
		return
	}
	time.Sleep(rand.N(20 * time.Millisecond))
	statement := fmt.Sprintf("UPDATE guarded SET n = %d", s.now) + where
	var err error
	if guard {
		err = c.v.e.Guarded(ctx, l, lock, statement, func() {})
	} else {
		_, err = c.v.db.ExecContext(context.WithoutCancel(ctx), statement)
	}
	switch {
	case err == nil:
		h.note(client, began, h.now(), s)
	case !guard || errors.Is(err, dblock.ErrOutcomeUnknown):
		s.what = unknown
		h.note(client, began, never, s)
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
