package lock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

func (contract) AcquiresAll(t *testing.T, p Place) {
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

func (contract) RefusesBadSets(t *testing.T, p Place) {
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

// AllAreLost loses a set with one of its keys, with its member, and with its end.
func (contract) AllAreLost(t *testing.T, p Place) {
	a, b := p.process(t, LeaseOptions{}), p.process(t, LeaseOptions{})
	set := acquireSet(t, a, []string{"x", "y", "z"})
	require.NoError(t, b.ForceRelease(t.Context(), "y", set.Fences()[1].Token))
	assert.ErrorIs(t, p.Check(t.Context(), a, set), dblock.ErrFenced)
	assert.ErrorIs(t, set.ExpireIn(t.Context(), time.Hour), dblock.ErrLost)
	suite.IsLost(t, set, dblock.ReasonStolen)

	again := acquireSet(t, b, []string{"x", "y", "z"})
	p.ForgetMembers(t)
	mixed, err := p.process(t, LeaseOptions{}).TryAcquireAll(t.Context(), []string{"fresh", "x"})
	require.NoError(t, err, "a key of the dead, and one without a row")
	suite.Release(t, mixed)
	after := acquireSet(t, a, []string{"z", "y"})
	assert.Error(t, p.Check(t.Context(), b, again))
	_ = again.Release(t.Context()) // it learns of it by its next heartbeat
	suite.Release(t, after)
	suite.IsLost(t, acquireSet(t, a, []string{"x", "y"}, dblock.WithMaxHold(50*time.Millisecond)), dblock.ReasonTimeUp)
}

func (contract) SetsAmongReaders(t *testing.T, p Place) {
	a, b := p.process(t, LeaseOptions{}), p.process(t, LeaseOptions{})
	reads := suite.Acquire(t, a, "y", dblock.WithShared())
	assert.ErrorIs(t, suite.Second(b.TryAcquireAll(t.Context(), []string{"x", "y"})), dblock.ErrNotAcquired)
	suite.IsFree(t, a, "x")
	suite.Release(t, reads)
	both := acquireSet(t, b, []string{"x", "y"})
	assert.ErrorIs(t, suite.Second(a.TryAcquire(t.Context(), "y", dblock.WithShared())), dblock.ErrNotAcquired)
	suite.Release(t, both)
}

// ASetIsReleasedAtOnce releases a set while another transaction has locked the row of its last key.
// No key of the set is free before that transaction ends. All are free after it.
func (leaseTests) ASetIsReleasedAtOnce(t *testing.T, v *env) {
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

// ASetIsSeenWhole takes snapshots while a process acquires and releases a set. The control is keys
// that are acquired one by one.
func (leaseTests) ASetIsSeenWhole(t *testing.T, v *env) {
	const enough, sizes = 50, "SELECT COUNT(*) FROM dblock_lease WHERE handle IS NOT NULL GROUP BY handle"
	l, keys := v.process(t, LeaseOptions{}), []string{"a", "b", "c", "d"}
	ctx, stop := context.WithCancel(t.Context())
	uses := suite.Beside(func() {
		for ctx.Err() == nil {
			suite.Release(t, acquireSet(t, l, keys))
		}
	})
	for seen := 0; seen < enough && !t.Failed(); {
		for _, n := range suite.ValuesOf[int](t, v.DB, sizes) {
			seen++
			assert.Equal(t, len(keys), n, "keys of a set")
		}
	}
	stop()
	uses()
	for _, key := range keys {
		defer suite.Release(t, suite.Acquire(t, l, key))
	}
	assert.Contains(t, suite.ValuesOf[int](t, v.DB, sizes), 1, "the control")
}
