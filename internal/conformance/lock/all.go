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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

func acquiresAll(t *testing.T, p Place) {
	a, b := p.process(t, LeaseOptions{}), p.process(t, LeaseOptions{})
	set := acquireSet(t, a, []string{"k3", "k1", "k2"})
	fences := set.Fences()
	require.Len(t, fences, 3)
	assert.Equal(t, []string{"k1", "k2", "k3"}, set.Keys())
	assert.Equal(t, "k1", set.Key())
	for i, f := range fences {
		assert.Equal(t, set.Keys()[i], f.Key)
		assert.Equal(t, fences[0].Handle, f.Handle)
		assert.NotZero(t, f.Token)
	}
	_, one := set.Fence()
	assert.False(t, one)
	assert.NoError(t, p.Check(t.Context(), a, set))
	for _, keys := range [][]string{{"k2", "k4"}, {"k4", "k1"}, {"k3"}} {
		for _, l := range []Leases{a, b} {
			var held *dblock.HeldError
			require.ErrorAs(t, suite.Second(l.TryAcquireAll(t.Context(), keys)), &held)
			assert.Contains(t, set.Keys(), held.Key)
		}
	}
	suite.IsFree(t, b, "k4")
	ctx := suite.Soon(t)
	second := suite.Begin(func() (*dblock.Lock, error) { return b.AcquireAll(ctx, []string{"k4", "k2"}) })
	suite.Release(t, set)
	next := suite.Must(second())(t)
	assert.Greater(t, next.Fences()[0].Token, fences[1].Token, "k2")
	suite.IsFree(t, a, "k1")
	suite.Release(t, next)
	assert.Error(t, p.Check(t.Context(), b, next))
}

func refusesBadSets(t *testing.T, p Place) {
	l := p.process(t, LeaseOptions{})
	acquire := func(ctx context.Context, keys []string, opts ...dblock.Option) error {
		lock, err := l.AcquireAll(ctx, keys, opts...)
		if err == nil {
			suite.Release(t, lock)
		}
		return err
	}
	for name, keys := range map[string][]string{
		"empty": {}, "twice": {"a", "b", "a"}, "an empty key": {"a", ""}, "NUL": {"a\x00"},
		"too many": make([]string, dblock.MaxSetKeys+1),
	} {
		assert.ErrorAs(t, acquire(t.Context(), keys), new(*dblock.InvalidError), name)
	}
	for _, o := range []dblock.Option{dblock.WithShared(), dblock.WithPermits(1, 1)} {
		assert.ErrorIs(t, acquire(t.Context(), []string{"a", "b"}, o), dblock.ErrInvalid, "another mode")
	}
	keys := make([]string, 257)
	for i := range keys {
		keys[i] = fmt.Sprint("k", i)
	}
	data := dblock.WithData(make([]byte, dblock.MaxDataBytes))
	assert.ErrorIs(t, acquire(t.Context(), keys, data), dblock.ErrInvalid, "data of more than 16 MiB")
	assert.NoError(t, acquire(t.Context(), keys[1:], data), "data of 16 MiB")

	deadlocks := func(err error, key string) {
		t.Helper()
		var deadlock *dblock.DeadlockError
		if assert.ErrorAs(t, err, &deadlock) {
			assert.Equal(t, key, deadlock.Key)
		}
	}
	one := suite.Acquire(t, l, "a")
	deadlocks(acquire(one.Context(), []string{"b", "a"}), "a")
	suite.Release(t, one)
	both := acquireSet(t, l, []string{"b", "a"})
	deadlocks(suite.Second(l.Acquire(both.Context(), "b")), "b")
	assert.NoError(t, acquire(both.Context(), []string{"a", "b"}, dblock.WithReentrant()))
	suite.Release(t, both)
}

// allAreLost loses a set with one of its keys, with its member, and with its end.
func allAreLost(t *testing.T, p Place) {
	a, b := p.process(t, LeaseOptions{}), p.process(t, LeaseOptions{})
	set := acquireSet(t, a, []string{"x", "y", "z"})
	require.NoError(t, b.ForceRelease(t.Context(), "y", set.Fences()[1].Token))
	assert.ErrorIs(t, p.Check(t.Context(), a, set), dblock.ErrFenced)
	assert.ErrorIs(t, set.ExpireIn(t.Context(), time.Hour), dblock.ErrLost)
	suite.IsLost(t, set, dblock.Stolen)

	again := acquireSet(t, b, []string{"x", "y", "z"})
	p.ForgetMembers(t)
	mixed, err := p.process(t, LeaseOptions{}).TryAcquireAll(t.Context(), []string{"fresh", "x"})
	require.NoError(t, err, "a key of the dead, and one without a row")
	suite.Release(t, mixed)
	after := acquireSet(t, a, []string{"z", "y"})
	assert.Error(t, p.Check(t.Context(), b, again))
	_ = again.Release(t.Context()) // it learns of it by its next heartbeat
	suite.Release(t, after)
	suite.IsLost(t, acquireSet(t, a, []string{"x", "y"}, dblock.WithMaxHold(50*time.Millisecond)), dblock.Ended)
}

func setsAmongReaders(t *testing.T, p Place) {
	a, b := p.process(t, LeaseOptions{}), p.process(t, LeaseOptions{})
	reads := suite.Acquire(t, a, "y", dblock.WithShared())
	assert.ErrorIs(t, suite.Second(b.TryAcquireAll(t.Context(), []string{"x", "y"})), dblock.ErrNotAcquired)
	suite.IsFree(t, a, "x")
	suite.Release(t, reads)
	both := acquireSet(t, b, []string{"x", "y"})
	assert.ErrorIs(t, suite.Second(a.TryAcquire(t.Context(), "y", dblock.WithShared())), dblock.ErrNotAcquired)
	suite.Release(t, both)
}

// aSetIsReleasedAtOnce releases a set while another transaction has locked the row of its last key.
// No key of the set is free before that transaction ends. All are free after it.
func aSetIsReleasedAtOnce(t *testing.T, v *env) {
	a, b := v.process(t, LeaseOptions{}), v.process(t, LeaseOptions{})
	keys := []string{"s1", "s2", "s3"}
	lock := acquireSet(t, a, keys)
	unlock := v.Locked(t, "SELECT 1 FROM dblock_lease WHERE lease_key = 's3' FOR UPDATE")
	suite.Release(t, lock)
	for until := time.Now().Add(300 * time.Millisecond); time.Now().Before(until) && !t.Failed(); {
		assert.EqualValues(t, 3, v.Count(t, "SELECT COUNT(*) FROM dblock_lease WHERE handle IS NOT NULL"))
	}
	unlock()
	suite.Release(t, acquireSet(t, b, keys))
}

// setsNeverDeadlock has many processes acquire random sets in random order, while snapshots show
// which keys are held.
func setsNeverDeadlock(t *testing.T, v *env) {
	const keys, size, processes, enough = 64, 8, 16, 100 // sets in a short run
	own, server := v.onAServerOfItsOwn(t)
	before := own.deadlocks(t)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var holders [keys]atomic.Bool
	var acquired atomic.Int64
	seen := 0
	use := func(l Leases) {
		var names []string
		some := rand.Perm(keys)[:size]
		for _, k := range some {
			names = append(names, fmt.Sprint("k", k))
		}
		lock, err := l.AcquireAll(ctx, names)
		if ctx.Err() != nil {
			err = except(err, dblock.ErrOutcomeUnknown)
		}
		if assert.NoError(t, except(err, dblock.ErrNotAcquired)); lock == nil {
			return
		}
		acquired.Add(1)
		for _, k := range some {
			assert.True(t, holders[k].CompareAndSwap(false, true), "k%d is held by two processes", k)
		}
		time.Sleep(rand.N(2 * time.Millisecond))
		for _, k := range some {
			holders[k].Store(false)
		}
		suite.Release(t, lock)
	}
	var crowd sync.WaitGroup
	for range processes {
		l, closePool, err := own.OpenLeases(t.Context(), LeaseOptions{TTL: time.Minute, Poll: 20 * time.Millisecond})
		require.NoError(t, err)
		crowd.Go(func() {
			defer closePool()
			for ctx.Err() == nil {
				use(l)
			}
			assert.NoError(t, l.Close(suite.Soon(t)))
		})
	}
	for ctx.Err() == nil {
		const sizes = "SELECT COUNT(*) FROM dblock_lease WHERE handle IS NOT NULL GROUP BY handle"
		for _, n := range suite.ValuesOf[int](t, own.DB, sizes) {
			seen++
			assert.Equal(t, size, n, "keys of a set")
		}
		if acquired.Load() >= enough && seen > 0 && os.Getenv(suite.EnvSoak) == "" {
			stop()
		}
	}
	crowd.Wait()
	assert.GreaterOrEqual(t, acquired.Load(), int64(enough))
	assert.NotZero(t, seen)
	own.deadlock(t)
	if server != nil {
		assert.EqualValues(t, 1, own.deadlocks(t)-before, "deadlocks, with the one made on purpose")
	}
}

// controlHoldsAPart acquires keys one by one: a snapshot shows parts.
func controlHoldsAPart(t *testing.T, v *env) {
	l := v.process(t, LeaseOptions{})
	for _, key := range []string{"a", "b"} {
		lock := suite.Acquire(t, l, key)
		defer suite.Release(t, lock)
	}
	const smallest = "SELECT MIN(n) FROM (" +
		"SELECT COUNT(*) AS n FROM dblock_lease WHERE handle IS NOT NULL GROUP BY handle) parts"
	assert.EqualValues(t, 1, v.Count(t, smallest))
}
