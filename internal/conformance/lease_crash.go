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

	"github.com/dblock-go/dblock"
)

const (
	crashProcesses = 16
	crashKeys      = 12
	crashTTL       = 2 * time.Second // what is in doubt after a crash is cleared up within three heartbeats
	crashStrikes   = 2               // in a round of a short run
	soakStrikes    = 10
	crashUpdates   = 15 // between two of them, at least
)

// keepsItsWordThroughCrashes has processes update values under locks while their server is killed, frozen and cut
// off from them, and unused leases are swept away: tokens only grow, no two hold a lock at once, and no update is lost.
// In later rounds their members are declared dead as well: no update is lost then either.
func keepsItsWordThroughCrashes(t *testing.T, v *vault) {
	own, server := v.onAServerOfItsOwn(t)
	strikes, rounds := crashStrikes, 2
	if os.Getenv(envSoak) != "" {
		strikes, rounds = soakStrikes, 20
	}
	n := &nemesis{
		db: own.db, kind: v.e.Kind, server: server, did: map[string]int{},
		random: rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0)),
	}
	c := own.newCrashes(t)
	for round := range rounds {
		evict := round >= rounds/2 // not before: whoever was evicted learns of it a heartbeat later
		h := c.round(t, fmt.Sprint("round ", round), true, evict, strikes, n.crashOrStrike)
		t.Logf("evictions %v: %v", evict, h)
		if !h.isRight(t, !evict) {
			t.Errorf("evictions %v: no lock would have answered so:\n%s", evict, h.wrong(!evict))
			return
		}
		h.forgeriesAreNoticed(t, !evict)
	}
	t.Logf("the nemesis did %v; %d leases were swept away; answers %v", n.did, c.swept.Load(), c.answers)
	for key := range crashKeys {
		c.isFree(t, fmt.Sprint("round 0 ", key))
	}
}

// crashOrStrike kills the server first, and then does one thing or another.
func (n *nemesis) crashOrStrike(ctx context.Context, i int) error {
	if i == 0 && n.server != nil {
		n.did["kill -9"]++
		return n.crash(ctx)
	}
	what, err := n.strike(ctx)
	n.did[what]++
	return err
}

// controlLosesUpdates is the same without the guard.
func controlLosesUpdates(t *testing.T, v *vault) {
	c := v.newCrashes(t)
	for try := range 20 {
		h := c.round(t, fmt.Sprint("try ", try), false, true, 4, func(context.Context, int) error { return nil })
		t.Log(h)
		if !h.isRight(t, false) {
			return
		}
	}
	t.Error("no update was lost: the test with the guard shows nothing")
}

// isFree fails where a key is held by nobody. The pool may have connections yet that were ended.
func (c *crashes) isFree(t *testing.T, key string) {
	t.Helper()
	for {
		lock, err := c.all[0].Acquire(soon(t), key)
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
	v     *vault
	all   []Leases
	value atomic.Int64 // the last one written, of all keys
	swept atomic.Int64

	mu      sync.Mutex
	answers map[string]int
}

func (v *vault) newCrashes(t *testing.T) *crashes {
	t.Helper()
	v.exec(t, "CREATE TABLE guarded (lease_key VARCHAR(100) PRIMARY KEY, n BIGINT)")
	c := &crashes{v: v, answers: map[string]int{}}
	for i := range crashProcesses {
		c.all = append(c.all, v.process(t, LeaseOptions{TTL: crashTTL, Poll: 20 * time.Millisecond, Label: fmt.Sprint("process ", i)}))
	}
	return c
}

// round has all processes work under the keys of a round, while it is struck so often: each time when enough was
// done since the time before.
func (c *crashes) round(
	t *testing.T, name string, guard, evict bool, strikes int, strike func(ctx context.Context, i int) error,
) *history {
	t.Helper()
	for key := range crashKeys {
		c.v.exec(t, fmt.Sprintf("INSERT INTO guarded VALUES ('%s %d', 0)", name, key))
	}
	h := &history{began: time.Now()}
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
	defer stop()
	var work sync.WaitGroup
	for client, l := range c.all {
		work.Go(func() {
			for ctx.Err() == nil {
				c.update(ctx, t, h, client, l, fmt.Sprint(name, " ", rand.N(crashKeys)), guard)
			}
		})
	}
	work.Go(func() { c.sweep(ctx) })
	if evict {
		work.Go(func() { c.evict(ctx) })
	}
	for i := range strikes {
		h.grows(ctx, crashUpdates)
		if err := strike(ctx, i); err != nil {
			t.Errorf("the nemesis itself failed: %v", err)
		}
	}
	h.grows(ctx, crashUpdates)
	if ctx.Err() != nil {
		t.Errorf("the work has come to a halt: %v", h)
	}
	stop()
	work.Wait()
	return h
}

// grows waits for so many more updates.
func (h *history) grows(ctx context.Context, n int) {
	for until := h.count(updated) + n; h.count(updated) < until && ctx.Err() == nil; {
		time.Sleep(5 * time.Millisecond)
	}
}

// update is one use of the lock: it reads, takes its time, and writes what nobody else writes.
func (c *crashes) update(ctx context.Context, t *testing.T, h *history, client int, l Leases, key string, guard bool) {
	waits, cancel := context.WithTimeout(ctx, 2*crashTTL)
	defer cancel()
	asked := h.now()
	lock, err := l.Acquire(waits, key)
	c.answered(t, err)
	if err != nil {
		time.Sleep(rand.N(10 * time.Millisecond))
		return
	}
	got := h.now()
	f, _ := lock.Fence()
	h.note(client, asked, got, step{what: granted, key: key, token: f.Token})
	c.write(ctx, h, client, l, lock, guard)
	leaves := h.now()
	if lock.Context().Err() != nil || time.Now().After(lock.ValidUntil()) {
		leaves = got // it was lost at some time, and others may have had it since
	}
	if err := lock.Release(ctx); err != nil && !errors.Is(err, dblock.ErrLost) {
		t.Errorf("release of %q: %v", key, err)
	}
	h.note(client, leaves, h.now(), step{what: left, key: key, token: f.Token})
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
	for _, allowed := range []error{dblock.ErrOutcomeUnknown, dblock.ErrNotAcquired, dblock.ErrBusy, dblock.ErrUnavailable} {
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
