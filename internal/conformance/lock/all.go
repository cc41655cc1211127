package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// acquiresAll takes sets of keys, all of each or nothing.
func acquiresAll(t *testing.T, p Place) {
	a, b := p.process(t, LeaseOptions{}), p.process(t, LeaseOptions{})
	fresh, err := a.AcquireAll(suite.Soon(t), []string{"k3", "k1", "k2"})
	if err != nil {
		t.Fatal(err)
	}
	fences := fresh.Fences()
	if _, one := fresh.Fence(); one || len(fences) != 3 || !slices.Equal(fresh.Keys(), []string{"k1", "k2", "k3"}) || fresh.Key() != "k1" {
		t.Errorf("it holds %v with %+v", fresh.Keys(), fences)
	}
	for i, f := range fences {
		if f.Key != fresh.Keys()[i] || f.Token == 0 || f.Handle != fences[0].Handle {
			t.Errorf("a fence of %+v", f)
		}
	}
	if err := p.Check(t.Context(), a, fresh); err != nil {
		t.Error(err)
	}
	for _, keys := range [][]string{{"k2", "k4"}, {"k4", "k1"}, {"k3"}} {
		for _, l := range []Leases{a, b} {
			_, err := l.TryAcquireAll(t.Context(), keys)
			var held *dblock.HeldError
			if !errors.As(err, &held) || !slices.Contains(fresh.Keys(), held.Key) {
				t.Errorf("%v: %v", keys, err)
			}
		}
	}
	suite.Release(t, suite.Acquire(t, b, "k4")) // it is free
	got := make(chan *dblock.Lock, 1)
	go func() {
		lock, err := b.AcquireAll(suite.Soon(t), []string{"k4", "k2"})
		if err != nil {
			t.Error(err)
		}
		got <- lock
	}()
	suite.Release(t, fresh)
	second := <-got
	if second == nil {
		return
	}
	for _, f := range second.Fences() {
		if f.Key == "k2" && f.Token <= fences[1].Token {
			t.Errorf("token %d after %d", f.Token, fences[1].Token)
		}
	}
	suite.Release(t, suite.Acquire(t, a, "k1"))
	suite.Release(t, second)
	if err := p.Check(t.Context(), b, second); err == nil {
		t.Error("a set that was given back passes a guard")
	}
}

// refusesBadSets checks the keys, and waits for no set of its own.
func refusesBadSets(t *testing.T, p Place) {
	l := p.process(t, LeaseOptions{})
	for name, keys := range map[string][]string{
		"empty": {}, "twice": {"a", "b", "a"}, "an empty key": {"a", ""}, "NUL": {"a\x00"}, "too many": make([]string, dblock.MaxSetKeys+1),
	} {
		var invalid *dblock.InvalidError
		if _, err := l.AcquireAll(t.Context(), keys); !errors.As(err, &invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, o := range []dblock.Option{dblock.WithShared(), dblock.WithPermits(1, 1)} {
		if _, err := l.AcquireAll(t.Context(), []string{"a", "b"}, o); !errors.Is(err, dblock.ErrInvalid) {
			t.Errorf("another mode: %v", err)
		}
	}
	keys := make([]string, 257)
	for i := range keys {
		keys[i] = fmt.Sprint("k", i)
	}
	data := dblock.WithData(make([]byte, dblock.MaxDataBytes))
	if _, err := l.AcquireAll(t.Context(), keys, data); !errors.Is(err, dblock.ErrInvalid) {
		t.Errorf("data of more than 16 MiB: %v", err)
	}
	if lock, err := l.AcquireAll(t.Context(), keys[1:], data); err != nil {
		t.Errorf("data of 16 MiB: %v", err)
	} else {
		suite.Release(t, lock)
	}
	one := suite.Acquire(t, l, "a")
	var deadlock *dblock.DeadlockError
	if _, err := l.AcquireAll(one.Context(), []string{"b", "a"}); !errors.As(err, &deadlock) || deadlock.Key != "a" {
		t.Errorf("below one of its keys: %v", err)
	}
	suite.Release(t, one)
	both, err := l.AcquireAll(t.Context(), []string{"b", "a"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Acquire(both.Context(), "b"); !errors.As(err, &deadlock) || deadlock.Key != "b" {
		t.Errorf("one of them below itself: %v", err)
	}
	again, err := l.AcquireAll(both.Context(), []string{"a", "b"}, dblock.WithReentrant())
	if err != nil {
		t.Fatal(err)
	}
	suite.Release(t, again)
	suite.Release(t, both)
}

// allAreLost loses a set with one of its keys, and with its member.
func allAreLost(t *testing.T, p Place) {
	a, b := p.process(t, LeaseOptions{}), p.process(t, LeaseOptions{})
	all, err := a.AcquireAll(t.Context(), []string{"x", "y", "z"})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.ForceRelease(t.Context(), "y", all.Fences()[1].Token); err != nil {
		t.Fatal(err)
	}
	if err := p.Check(t.Context(), a, all); !errors.Is(err, dblock.ErrFenced) {
		t.Errorf("a set that lacks one: %v", err)
	}
	if err := all.ExpireIn(t.Context(), time.Hour); !errors.Is(err, dblock.ErrLost) {
		t.Errorf("a set that lacks one: %v", err)
	}
	suite.IsLost(t, all, dblock.Stolen)
	again, err := b.AcquireAll(suite.Soon(t), []string{"x", "y", "z"})
	if err != nil {
		t.Fatal(err)
	}
	p.ForgetMembers(t)
	c := p.process(t, LeaseOptions{})
	mixed, err := c.TryAcquireAll(t.Context(), []string{"fresh", "x"})
	if err != nil {
		t.Fatalf("a key of the dead, and one that nobody has locked before: %v", err)
	}
	suite.Release(t, mixed)
	after, err := a.AcquireAll(suite.Soon(t), []string{"z", "y"})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Check(t.Context(), b, again); err == nil {
		t.Error("a set of which another one has a part passes a guard")
	}
	_ = again.Release(t.Context()) // it learns of it by its next heartbeat
	suite.Release(t, after)
	short, err := a.AcquireAll(suite.Soon(t), []string{"x", "y"}, dblock.WithMaxHold(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	suite.IsLost(t, short, dblock.Ended)
}

// setsAmongReaders waits for readers of one of its keys.
func setsAmongReaders(t *testing.T, p Place) {
	a, b := p.process(t, LeaseOptions{}), p.process(t, LeaseOptions{})
	reads := suite.Acquire(t, a, "y", dblock.WithShared())
	if _, err := b.TryAcquireAll(t.Context(), []string{"x", "y"}); !errors.Is(err, dblock.ErrNotAcquired) {
		t.Errorf("beside a reader: %v", err)
	}
	suite.Release(t, suite.Acquire(t, a, "x"))
	suite.Release(t, reads)
	both, err := b.AcquireAll(suite.Soon(t), []string{"x", "y"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.TryAcquire(t.Context(), "y", dblock.WithShared()); !errors.Is(err, dblock.ErrNotAcquired) {
		t.Errorf("a reader of one of a set: %v", err)
	}
	suite.Release(t, both)
}

// aSetIsReleasedAtOnce releases a set while another transaction has locked the row of its last key. No key of the set is
// free before that transaction ends. All are free after it.
func aSetIsReleasedAtOnce(t *testing.T, v *env) {
	a, b := v.process(t, LeaseOptions{}), v.process(t, LeaseOptions{})
	keys := []string{"s1", "s2", "s3"}
	lock, err := a.AcquireAll(suite.Soon(t), keys)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := v.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), "SELECT 1 FROM dblock_lease WHERE lease_key = 's3' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	suite.Release(t, lock)
	const held = "SELECT COUNT(*) FROM dblock_lease WHERE lease_key IN ('s1', 's2', 's3') AND handle IS NOT NULL"
	for until := time.Now().Add(300 * time.Millisecond); time.Now().Before(until) && !t.Failed(); {
		if n := v.count(t, held); n != int64(len(keys)) {
			t.Errorf("%d keys of a set of %d are held, and the others are free", n, len(keys))
		}
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	next, err := b.AcquireAll(suite.Soon(t), keys)
	if err != nil {
		t.Fatal(err)
	}
	suite.Release(t, next)
}

const (
	setKeys      = 64
	setSize      = 8
	setProcesses = 16
)

// setsNeverDeadlock has many processes acquire random sets, in random order, some of whose keys others have, while
// somebody else looks on.
func setsNeverDeadlock(t *testing.T, v *env) {
	own, server := v.onAServerOfItsOwn(t)
	before := own.deadlocks(t)
	const enough = 100 // in a short run
	soak := os.Getenv(suite.EnvSoak) != ""
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var crowd sync.WaitGroup
	var mu sync.Mutex
	holders := make(map[string]int)
	acquired := 0
	for i := range setProcesses {
		crowd.Go(func() {
			l, closePool, err := v.e.Open(t.Context(), own.dsn, LeaseOptions{TTL: time.Minute, Poll: 20 * time.Millisecond})
			if err != nil {
				t.Error(err)
				return
			}
			defer closePool()
			defer func() {
				if err := l.Close(context.WithoutCancel(ctx)); err != nil {
					t.Error(err)
				}
			}()
			for ctx.Err() == nil {
				lock, err := l.AcquireAll(ctx, someOf(setKeys, setSize))
				if errors.Is(err, dblock.ErrNotAcquired) || ctx.Err() != nil && errors.Is(err, dblock.ErrOutcomeUnknown) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if acquired++; acquired == enough && !soak {
					stop()
				}
				for _, key := range lock.Keys() {
					if by, held := holders[key]; held {
						t.Errorf("%q is held by process %d and %d", key, by, i)
					}
					holders[key] = i
				}
				mu.Unlock()
				time.Sleep(rand.N(2 * time.Millisecond))
				mu.Lock()
				for _, key := range lock.Keys() {
					delete(holders, key)
				}
				mu.Unlock()
				suite.Release(t, lock)
			}
		})
	}
	seen := own.lookForParts(t, ctx)
	crowd.Wait()
	t.Logf("%d sets of %d keys acquired; %d seen, each of them whole", acquired, setSize, seen)
	if acquired < enough || seen == 0 {
		t.Error("hardly anything was acquired, or seen: this shows nothing")
	}
	own.deadlock(t)
	if n := own.deadlocks(t) - before; n != 1 && server != nil {
		t.Errorf("the server saw %d deadlocks, want the one made on purpose", n)
	}
}

// someOf draws keys, in random order.
func someOf(keys, n int) []string {
	some := make([]string, n)
	for i, k := range rand.Perm(keys)[:n] {
		some[i] = fmt.Sprint("k", k)
	}
	return some
}

// lookForParts reads again and again who holds what, in one snapshot each time.
func (v *env) lookForParts(t *testing.T, ctx context.Context) (seen int) {
	for ctx.Err() == nil {
		rows, err := v.db.QueryContext(t.Context(), "SELECT COUNT(*) FROM dblock_lease WHERE handle IS NOT NULL GROUP BY handle")
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			var n int
			if err := rows.Scan(&n); err != nil {
				t.Error(err)
			}
			if seen++; n != setSize {
				t.Errorf("a set with %d keys of %d", n, setSize)
			}
		}
		if err := rows.Close(); err != nil {
			t.Error(err)
		}
	}
	return seen
}

// controlHoldsAPart takes the keys one by one: what looks on sees parts.
func controlHoldsAPart(t *testing.T, v *env) {
	l := v.process(t, LeaseOptions{})
	for _, key := range []string{"a", "b"} {
		lock := suite.Acquire(t, l, key)
		defer suite.Release(t, lock)
	}
	if n := v.count(t, "SELECT MIN(n) FROM (SELECT COUNT(*) AS n FROM dblock_lease WHERE handle IS NOT NULL GROUP BY handle) parts"); n != 1 {
		t.Errorf("keys taken one by one look like a set of %d", n)
	}
}
