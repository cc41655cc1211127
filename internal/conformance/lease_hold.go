package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/migrations"
)

func excludes(t *testing.T, v *vault) {
	a, b := v.process(t, LeaseOptions{Label: "a's process"}), v.process(t, LeaseOptions{})
	first := acquire(t, a, "k", dblock.WithLabel("nightly run"))
	_, err := b.TryAcquire(t.Context(), "k")
	held := isHeld(t, err, "k")
	if held.Holder.Label != "nightly run" || len(held.Holder.Member) != 32 || held.Holder.Token != token(t, first) {
		t.Errorf("told that it is held by %+v", held.Holder)
	}
	if held.Remaining <= 0 || held.Remaining > time.Minute {
		t.Errorf("told that it is held for %v", held.Remaining)
	}
	if until := time.Until(first.ValidUntil()); until <= 0 || until > time.Minute {
		t.Errorf("valid for %v", until)
	}
	other := acquire(t, b, "another key")
	release(t, first)
	if err := first.Release(t.Context()); err != nil {
		t.Errorf("a second release: %v", err)
	}
	if first.Context().Err() == nil || errors.Is(context.Cause(first.Context()), dblock.ErrLost) {
		t.Errorf("a released lock's context: %v", context.Cause(first.Context()))
	}
	second, err := b.TryAcquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if token(t, second) <= token(t, first) {
		t.Errorf("token %d after %d", token(t, second), token(t, first))
	}
	release(t, second)
	release(t, other)
}

func excludesWithinAProcess(t *testing.T, v *vault) {
	l := v.process(t, LeaseOptions{})
	lock := acquire(t, l, "k")
	_, err := l.TryAcquire(t.Context(), "k")
	isHeld(t, err, "k")
	release(t, lock)
	again, err := l.TryAcquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	release(t, again)
}

func keepsWhatIsInUse(t *testing.T, v *vault) {
	const ttl = 2 * time.Second
	a, b := v.process(t, LeaseOptions{TTL: ttl}), v.process(t, LeaseOptions{})
	lock := acquire(t, a, "k")
	for end := time.Now().Add(2 * ttl); time.Now().Before(end); {
		_, err := b.TryAcquire(t.Context(), "k")
		isHeld(t, err, "k")
	}
	if lock.Context().Err() != nil {
		t.Errorf("lost: %v", context.Cause(lock.Context()))
	}
	release(t, lock)
}

func endsWhenItsTimeIsUp(t *testing.T, v *vault) {
	a, b := v.process(t, LeaseOptions{}), v.process(t, LeaseOptions{})
	capped := acquire(t, a, "capped", dblock.WithMaxHold(300*time.Millisecond))
	bounded := acquire(t, a, "bounded")
	if err := bounded.ExpireIn(t.Context(), 300*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	long := acquire(t, a, "long", dblock.WithMaxHold(time.Hour))
	if err := long.ExpireIn(t.Context(), 2*time.Hour); err != nil || time.Until(long.ValidUntil()) > time.Hour {
		t.Errorf("ExpireIn beyond WithMaxHold: %v, valid until %v", err, long.ValidUntil())
	}
	if _, err := b.TryAcquire(t.Context(), "capped"); err == nil && capped.Context().Err() == nil {
		t.Error("acquired before the time was up")
	}
	for _, lock := range []*dblock.Lock{capped, bounded} {
		next := acquire(t, b, lock.Key())
		isLost(t, lock, dblock.Ended)
		release(t, next)
	}
	if err := bounded.ExpireIn(t.Context(), time.Hour); !errors.Is(err, dblock.ErrLost) {
		t.Errorf("ExpireIn of what was lost: %v", err)
	}
	release(t, long)
}

func lastsWithoutItsProcess(t *testing.T, v *vault) {
	a, b := v.process(t, LeaseOptions{}), v.process(t, LeaseOptions{})
	lock := acquire(t, a, "k", dblock.WithoutRenewal(1500*time.Millisecond))
	kept := acquire(t, a, "with the process")
	v.exec(t, "DELETE FROM dblock_member") // the process is dead, as far as anybody can tell
	release(t, acquire(t, b, "with the process"))
	if _, err := b.TryAcquire(t.Context(), "k"); !errors.Is(err, dblock.ErrNotAcquired) && time.Now().Before(lock.ValidUntil()) {
		t.Errorf("got %v while it lasts", err)
	}
	next := acquire(t, b, "k")
	isLost(t, lock, dblock.Ended)
	release(t, next)
	_ = kept.Release(t.Context())
}

func takesOverFromTheDead(t *testing.T, v *vault) {
	a, b := v.process(t, LeaseOptions{TTL: 3 * time.Second}), v.process(t, LeaseOptions{})
	lock := acquire(t, a, "k")
	_, err := b.TryAcquire(t.Context(), "k")
	isHeld(t, err, "k")
	v.exec(t, "UPDATE dblock_member SET expires_at = '2000-01-01'")
	next, err := b.TryAcquire(t.Context(), "k")
	if err != nil {
		// b's own member is dead as well: it joins again once it has noticed
		next = acquire(t, b, "k")
	}
	if token(t, next) <= token(t, lock) {
		t.Errorf("token %d after %d", token(t, next), token(t, lock))
	}
	isLost(t, lock, dblock.Evicted)
	if next.Context().Err() != nil {
		t.Errorf("the new holder lost it: %v", context.Cause(next.Context()))
	}
	release(t, next)
}

func aLostMemberLosesAll(t *testing.T, v *vault) {
	l := v.process(t, LeaseOptions{TTL: time.Second})
	var locks []*dblock.Lock
	for i := range 20 {
		locks = append(locks, acquire(t, l, fmt.Sprint("k", i)))
	}
	v.exec(t, "DELETE FROM dblock_member")
	for _, lock := range locks {
		isLost(t, lock, dblock.Evicted)
	}
	for _, lock := range locks {
		release(t, acquire(t, l, lock.Key()))
	}
}

func neverWaitsForItself(t *testing.T, v *vault) {
	l := v.process(t, LeaseOptions{})
	lock := acquire(t, l, "k")
	_, err := l.Acquire(lock.Context(), "k")
	var dead *dblock.DeadlockError
	if !errors.Is(err, dblock.ErrDeadlock) || !errors.As(err, &dead) || dead.Key != "k" || !strings.Contains(dead.Where, "lease.go:") {
		t.Errorf("got %v", err)
	}
	child, err := l.Acquire(lock.Context(), "k", dblock.WithReentrant())
	if err != nil {
		t.Fatal(err)
	}
	if token(t, child) != token(t, lock) {
		t.Error("a child has another token")
	}
	release(t, lock)
	if child.Context().Err() != nil {
		t.Error("the child ended with its parent")
	}
	_, err = l.TryAcquire(t.Context(), "k")
	isHeld(t, err, "k")
	release(t, child)
	if _, err := l.TryAcquire(lock.Context(), "k"); !errors.Is(err, context.Canceled) && !errors.Is(err, dblock.ErrNotAcquired) {
		t.Errorf("below a context that has ended: %v", err)
	}
	free, err := l.TryAcquire(context.WithoutCancel(lock.Context()), "k") // below the context of what was released
	if err != nil {
		t.Fatal(err)
	}
	release(t, free)
	err = dblock.Do(soon(t), l, "k", func(ctx context.Context, _ *dblock.Lock) error {
		_, err := l.Acquire(ctx, "k")
		return err
	})
	if !errors.Is(err, dblock.ErrDeadlock) {
		t.Errorf("below Do: %v", err)
	}
}

func keysAreBytes(t *testing.T, v *vault) {
	l := v.process(t, LeaseOptions{})
	for _, key := range []string{"a", "A", "a ", " a", "\u00e1", "a\u0301", "a\t", "'; --", strings.Repeat("k", dblock.MaxKeyBytes), "%"} {
		lock, err := l.TryAcquire(t.Context(), key)
		if err != nil {
			t.Errorf("%q: %v", key, err)
			continue
		}
		defer release(t, lock)
	}
	for _, key := range []string{"", "a\x00b", "\xff", strings.Repeat("k", dblock.MaxKeyBytes+1)} {
		var invalid *dblock.InvalidError
		if _, err := l.TryAcquire(t.Context(), key); !errors.As(err, &invalid) || !errors.Is(err, dblock.ErrInvalid) || invalid.Field != "key" {
			t.Errorf("%.9q: %v", key, err)
		}
	}
}

func refusesWhatMakesNoSense(t *testing.T, v *vault) {
	l := v.process(t, LeaseOptions{})
	for name, o := range map[string]dblock.Option{
		"no time":    dblock.WithMaxHold(0),
		"no time, 2": dblock.WithoutRenewal(-time.Second),
		"label":      dblock.WithLabel(strings.Repeat("l", dblock.MaxLabelBytes+1)),
		"data":       dblock.WithData(make([]byte, dblock.MaxDataBytes+1)),
	} {
		if _, err := l.TryAcquire(t.Context(), "k", o); !errors.Is(err, dblock.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := l.TryAcquire(t.Context(), "k", dblock.WithShared()); !errors.Is(err, dblock.ErrUnsupported) || l.Caps().Shared {
		t.Errorf("shared: %v", err)
	}
	for _, o := range []LeaseOptions{
		{TTL: 999 * time.Millisecond}, {TTL: 25 * time.Hour}, {TTL: time.Second, Margin: time.Second}, {Margin: -1},
		{Poll: time.Millisecond}, {Label: "\xff"}, {Schema: "a\x00"},
	} {
		if _, closePool, err := v.e.Open(t.Context(), v.dsn, o); !errors.Is(err, dblock.ErrInvalid) {
			if err == nil {
				closePool()
			}
			t.Errorf("%+v: %v", o, err)
		}
	}
	lock := acquire(t, l, "k")
	if err := lock.ExpireIn(t.Context(), 0); !errors.Is(err, dblock.ErrInvalid) {
		t.Errorf("ExpireIn 0: %v", err)
	}
	release(t, lock)
}

func showsWhoHoldsWhat(t *testing.T, v *vault) {
	l := v.process(t, LeaseOptions{Label: "worker 7"})
	b := acquire(t, l, "b")
	a := acquire(t, l, "a", dblock.WithLabel("by hand"), dblock.WithMaxHold(time.Hour), dblock.WithData([]byte{0, 255}))
	held, err := l.Held(t.Context())
	if err != nil || len(held) != 2 {
		t.Fatalf("%v, %v", held, err)
	}
	fa, _ := a.Fence()
	if h := held[0]; h.Key != "a" || h.Fence != fa || h.Holder.Label != "by hand" || h.Remaining <= 0 || h.Remaining > time.Minute {
		t.Errorf("shown: %+v", h)
	}
	if h := held[1]; h.Key != "b" || h.Holder.Label != "worker 7" || len(h.Holder.Member) != 32 || h.Age < 0 || h.Age > time.Minute {
		t.Errorf("shown: %+v", h)
	}
	release(t, a)
	release(t, b)
	if held, err := l.Held(t.Context()); err != nil || len(held) != 0 {
		t.Errorf("after the release: %v, %v", held, err)
	}
}

func closeGivesBack(t *testing.T, v *vault) {
	a, b := v.process(t, LeaseOptions{}), v.process(t, LeaseOptions{})
	lock := acquire(t, a, "k")
	waits := make(chan error, 1)
	blocker := acquire(t, b, "busy")
	go func() {
		_, err := a.Acquire(context.Background(), "busy")
		waits <- err
	}()
	closed := make(chan error, 1)
	go func() { closed <- a.Close(context.Background()) }()
	isLost(t, lock, dblock.Closed)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if err := <-waits; !errors.Is(err, dblock.ErrClosed) {
		t.Errorf("a call that waited: %v", err)
	}
	if _, err := a.TryAcquire(t.Context(), "k"); !errors.Is(err, dblock.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	release(t, acquire(t, b, "k"))
	release(t, blocker)
	if n := v.count(t, "SELECT count(*) FROM dblock_member"); n != 1 {
		t.Errorf("%d members, want b's", n)
	}
}

func sweepsWhatNobodyUses(t *testing.T, v *vault) {
	l := v.process(t, LeaseOptions{})
	used := acquire(t, l, "used")
	lasting := acquire(t, l, "lasting", dblock.WithoutRenewal(time.Hour))
	for i := range 5 {
		release(t, acquire(t, l, fmt.Sprint("free", i)))
	}
	fresh := acquire(t, l, "fresh")
	release(t, fresh)
	v.exec(t, "UPDATE dblock_lease SET changed_at = '2000-01-01' WHERE lease_key <> 'fresh'")
	if n, err := l.Sweep(t.Context()); err != nil || n != 5 {
		t.Errorf("swept %d rows, %v, want the 5 free ones", n, err)
	}
	if n := v.count(t, "SELECT count(*) FROM dblock_lease"); n != 3 {
		t.Errorf("%d rows are left, want 3", n)
	}
	again := acquire(t, l, "fresh")
	if token(t, again) <= token(t, fresh) {
		t.Error("the token fell")
	}
	release(t, again)
	release(t, used)
	release(t, lasting)
}

// manyProcessesNeverMeet counts who is inside, in memory, and sees the tokens grow.
func manyProcessesNeverMeet(t *testing.T, v *vault) {
	const processes, callers, rounds, keys = 3, 6, 20, 2
	var inside [keys]guarded
	var crowd sync.WaitGroup
	for range processes {
		l := v.process(t, LeaseOptions{Poll: 10 * time.Millisecond})
		for c := range callers {
			crowd.Go(func() {
				for range rounds {
					lock, err := l.Acquire(soon(t), fmt.Sprint("k", c%keys))
					if err != nil {
						t.Error(err)
						return
					}
					f, _ := lock.Fence()
					if fault := inside[c%keys].enter(f.Token); fault != "" {
						t.Error(fault)
					}
					inside[c%keys].leave()
					release(t, lock)
				}
			})
		}
	}
	crowd.Wait()
	for i := range inside {
		if want := processes * callers / keys * rounds; inside[i].entered != want {
			t.Errorf("%d entered, want %d", inside[i].entered, want)
		}
	}
}

// controlMeets does the same without a lock: the counter sees it.
func controlMeets(t *testing.T, _ *vault) {
	var inside guarded
	if fault := inside.enter(1); fault != "" {
		t.Fatal(fault)
	}
	if inside.enter(2) == "" {
		t.Error("two are inside, and nobody has seen it")
	}
	inside.leave()
	inside.leave()
	if inside.enter(2) == "" {
		t.Error("a token that has not grown was not seen")
	}
}

// guarded counts who is inside at once.
type guarded struct {
	mu      sync.Mutex
	inside  int
	entered int
	token   int64
}

func (g *guarded) enter(token int64) (fault string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside++
	g.entered++
	before := g.token
	g.token = max(g.token, token)
	if g.inside > 1 {
		return fmt.Sprintf("%d are inside", g.inside)
	}
	if token <= before {
		return fmt.Sprintf("token %d after %d", token, before)
	}
	return ""
}

func (g *guarded) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
}

func tellsTheObserver(t *testing.T, v *vault) {
	var mu sync.Mutex
	var told []string
	note := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, fmt.Sprintf(format, args...))
	}
	l := v.process(t, LeaseOptions{Observer: dblock.Observer{
		Acquired: func(key string, _ time.Duration) { note("acquired %s", key) },
		NotAcquired: func(key string, _ time.Duration, err error) {
			note("not acquired %s: %v", key, errors.Is(err, dblock.ErrNotAcquired))
		},
		Released: func(key string, _ time.Duration) { note("released %s", key) },
		Lost:     func(key string, _ time.Duration, why dblock.Reason) { note("lost %s: %s", key, why) },
	}})
	lock := acquire(t, l, "k")
	_, _ = l.TryAcquire(t.Context(), "k")
	release(t, lock)
	short := acquire(t, l, "short", dblock.WithMaxHold(time.Millisecond))
	isLost(t, short, dblock.Ended)
	want := "acquired k, not acquired k: true, released k, acquired short, lost short: " + string(dblock.Ended)
	mu.Lock()
	defer mu.Unlock()
	if got := strings.Join(told, ", "); got != want {
		t.Errorf("told %s\nwant %s", got, want)
	}
}

// locksWithTheDocumentedGrants does all there is as a user that has what docs/grants.md gives it.
func locksWithTheDocumentedGrants(t *testing.T, v *vault) {
	as := &vault{v.e, serviceUser(t, v.e.Kind, v.dsn, v.db), v.db}
	a, b := as.process(t, LeaseOptions{}), as.process(t, LeaseOptions{})
	lock := acquire(t, a, "k")
	if err := v.e.Guarded(t.Context(), a, lock, "SELECT 1", func() {}); err != nil {
		t.Error(err)
	}
	got := make(chan *dblock.Lock, 1)
	go func() { got <- acquire(t, b, "k") }()
	release(t, lock)
	next := <-got
	if err := next.ExpireIn(t.Context(), time.Hour); err != nil {
		t.Error(err)
	}
	v.exec(t, "UPDATE dblock_member SET expires_at = '2000-01-01'")
	release(t, acquire(t, a, "k"))
	if _, err := a.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := a.Held(t.Context()); err != nil {
		t.Error(err)
	}
	_ = next.Release(t.Context())
}

// locksInASchema has the tables where the connection does not look by itself.
func locksInASchema(t *testing.T, v *vault) {
	name := "elsewhere"
	if v.e.Kind != devdb.Postgres { // databases are the server's
		var here string
		if err := v.db.QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&here); err != nil {
			t.Fatal(err)
		}
		name = here + "_e"
		v.exec(t, "CREATE DATABASE "+name)
		t.Cleanup(func() { _, _ = v.db.ExecContext(context.WithoutCancel(t.Context()), "DROP DATABASE "+name) })
	}
	if _, err := migrations.Up(t.Context(), v.db, migrations.Options{Schema: name}); err != nil {
		t.Fatal(err)
	}
	l, other := v.process(t, LeaseOptions{Schema: name}), v.process(t, LeaseOptions{})
	lock, there := acquire(t, l, "k"), acquire(t, other, "k")
	if err := v.e.Guarded(t.Context(), l, lock, "SELECT 1", func() {}); err != nil {
		t.Error(err)
	}
	if err := v.e.Guarded(t.Context(), other, lock, "SELECT 1", func() {}); !errors.Is(err, dblock.ErrFenced) {
		t.Errorf("a guard in the other schema: %v", err)
	}
	if n := v.count(t, "SELECT count(*) FROM "+name+".dblock_lease"); n != 1 {
		t.Errorf("%d leases", n)
	}
	if _, err := l.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	if held, err := l.Held(t.Context()); err != nil || len(held) != 1 {
		t.Errorf("%v, %v", held, err)
	}
	release(t, lock)
	release(t, there)
}

func forceReleaseWantsTheToken(t *testing.T, v *vault) {
	a, b := v.process(t, LeaseOptions{}), v.process(t, LeaseOptions{})
	lock := acquire(t, a, "k")
	for key, token := range map[string]int64{"k": token(t, lock) + 1, "nobody's": token(t, lock)} {
		if err := b.ForceRelease(t.Context(), key, token); !errors.Is(err, dblock.ErrNotHeld) {
			t.Errorf("%s with %d: %v", key, token, err)
		}
	}
	if err := b.ForceRelease(t.Context(), "k", token(t, lock)); err != nil {
		t.Fatal(err)
	}
	next := acquire(t, b, "k")
	if err := v.e.Guarded(t.Context(), a, lock, "SELECT 1", func() {}); !errors.Is(err, dblock.ErrFenced) {
		t.Errorf("the old holder's guard: %v", err)
	}
	release(t, lock) // it has not heard of it, and takes nothing from the new holder
	if _, err := a.TryAcquire(t.Context(), "k"); !errors.Is(err, dblock.ErrNotAcquired) {
		t.Errorf("after the old holder's release: %v", err)
	}
	release(t, next)
}
