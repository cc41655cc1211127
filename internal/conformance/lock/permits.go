package lock

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
)

// PermitsAreLimited: a semaphore grants its permits, and no more.
func (contract) PermitsAreLimited(t *testing.T, p Place) {
	a, b := p.two(t)
	one, two, three := dblock.WithPermits(1, 3), dblock.WithPermits(2, 3), dblock.WithPermits(3, 3)
	first, second := suite.Acquire(t, a, "k", one), suite.Acquire(t, b, "k", one)
	assert.NotZero(t, token(t, first))
	assert.NotZero(t, token(t, second))
	suite.IsTaken(t, b, "k", two)
	third := suite.Acquire(t, b, "k", one)
	suite.IsTaken(t, a, "k", one)
	suite.IsTaken(t, b, "k", one)
	suite.IsFree(t, a, "k") // the exclusive lock of the key is another lock
	suite.Release(t, second)
	suite.Release(t, third)
	both := suite.Acquire(t, a, "k", two)
	suite.IsTaken(t, b, "k", one)
	assert.NoError(t, p.Check(t.Context(), a, both))
	suite.Release(t, both)
	suite.Release(t, first)
	all := suite.Acquire(t, b, "k", three)
	suite.Release(t, all)
	assert.Error(t, p.Check(t.Context(), b, all), "released permits pass a guard")
}

func (contract) RefusesOtherLimits(t *testing.T, p Place) {
	l := p.process(t, LeaseOptions{})
	for _, bad := range [][2]int{{1, 0}, {0, 1}, {3, 2}, {-1, 2}, {1, -1}, {1, dblock.MaxPermits + 1}} {
		assert.ErrorIs(t, suite.Second(l.Acquire(t.Context(), "k", dblock.WithPermits(bad[0], bad[1]))), dblock.ErrInvalid, bad)
	}
	for _, bad := range []int{0, -1, dblock.MaxPermits + 1} {
		assert.ErrorIs(t, l.SetPermits(t.Context(), "k", bad), dblock.ErrInvalid, bad)
	}
	suite.IsFree(t, l, "k", dblock.WithPermits(1, 2))
	_, err := l.Acquire(t.Context(), "k", dblock.WithPermits(1, 3))
	assert.ErrorIs(t, err, dblock.ErrLimit)
	assert.Equal(t, dblock.LimitError{Key: "k", Stored: 2, Asked: 3}, *suite.As[*dblock.LimitError](t, err))
	suite.IsFree(t, l, "k", dblock.WithPermits(2, 2))
	outer := suite.Acquire(t, l, "k", dblock.WithPermits(1, 2))
	_, err = l.Acquire(outer.Context(), "k", dblock.WithPermits(1, 2))
	assert.ErrorIs(t, err, dblock.ErrDeadlock, "below itself")
	suite.Release(t, outer)
}

// ChangesItsPermits raises and lowers the number of permits of a semaphore in use.
func (contract) ChangesItsPermits(t *testing.T, p Place) {
	a, b := p.two(t)
	oneOf := func(limit int) dblock.Option { return dblock.WithPermits(1, limit) }
	first := suite.Acquire(t, a, "k", oneOf(1))
	require.NoError(t, b.SetPermits(t.Context(), "k", 3))
	second, third := suite.Acquire(t, b, "k", oneOf(3)), suite.Acquire(t, a, "k", oneOf(3))
	require.NoError(t, b.SetPermits(t.Context(), "k", 2))
	for _, lock := range []*dblock.Lock{first, second, third} {
		assert.NoError(t, context.Cause(lock.Context()))
	}
	suite.IsTaken(t, a, "k", oneOf(2))
	suite.Release(t, third)
	suite.IsTaken(t, a, "k", oneOf(2))
	waiter := suite.Waiter(t, b, "k", oneOf(2))
	suite.Release(t, first)
	suite.Release(t, waiter())
	suite.Release(t, second)
	require.NoError(t, a.SetPermits(t.Context(), "new", 2))
	suite.IsFree(t, b, "new", dblock.WithPermits(2, 2))
}

// FewerPermitsAreFewer: holders of a larger number count against a smaller one, in whatever order
// they release.
func (contract) FewerPermitsAreFewer(t *testing.T, p Place) {
	l := p.process(t, LeaseOptions{})
	only := dblock.WithPermits(1, 1)
	for last := range 3 {
		key := fmt.Sprint("k", last)
		var held []*dblock.Lock
		for range 3 {
			held = append(held, suite.Acquire(t, l, key, dblock.WithPermits(1, 3)))
		}
		require.NoError(t, l.SetPermits(t.Context(), key, 1))
		for i, lock := range held {
			if i != last {
				suite.Release(t, lock)
				suite.IsTaken(t, l, key, only)
			}
		}
		waiter := suite.Waiter(t, l, key, only)
		suite.Release(t, held[last])
		suite.Release(t, waiter())
	}
}

func (contract) TheDeadGivePermitsBack(t *testing.T, p Place) {
	deadGiveWay(t, p, []dblock.Option{dblock.WithPermits(1, 3)}, []dblock.Option{dblock.WithPermits(3, 3)})
}

func (contract) AWaitForPermitsEnds(t *testing.T, p Place) {
	l := p.process(t, LeaseOptions{})
	one := dblock.WithPermits(1, 1)
	lock := suite.Acquire(t, l, "k", one)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	suite.Crowd(5, func(int) {
		_, err := l.Acquire(ctx, "k", one)
		if suite.IsUnknown(err) { // one may ask just then
			return
		}
		assert.ErrorIs(t, err, dblock.ErrNotAcquired)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
	})
	suite.Release(t, lock)
	suite.IsFree(t, l, "k", one)
}

// FreesAllPermits releases permits one of whose rows another transaction has locked, as a guard
// does that is about to lock them all.
func (leaseTests) FreesAllPermits(t *testing.T, v *env) {
	l := v.process(t, LeaseOptions{})
	all := dblock.WithPermits(3, 3)
	held := suite.Acquire(t, l, "k", all)
	unlock := v.Locked(t, "SELECT slot FROM dblock_permit WHERE lease_key = 'k' AND slot = 2 FOR UPDATE")
	suite.Release(t, held)
	unlock()
	suite.IsFree(t, l, "k", all)
}

// ManyPermitsTakeLittleTime acquires and releases the largest number of permits beside other locks,
// which live for longer than each call takes. A call fails that takes as long as a statement may,
// which is 10 s here. With a cost that grows with the square it took minutes.
func (leaseTests) ManyPermitsTakeLittleTime(t *testing.T, v *env) {
	const ttl, others = 30 * time.Second, 100
	l, next := v.process(t, LeaseOptions{TTL: ttl}), v.process(t, LeaseOptions{TTL: ttl})
	var kept []*dblock.Lock
	for i := range others {
		kept = append(kept, suite.Acquire(t, l, fmt.Sprint("other ", i)))
	}
	all := dblock.WithPermits(dblock.MaxPermits, dblock.MaxPermits)
	for _, process := range []dblock.Locker{l, next, l} {
		suite.Release(t, suite.Acquire(t, process, "k", all))
	}
	for _, lock := range kept {
		assert.NoError(t, context.Cause(lock.Context()))
		suite.Release(t, lock)
	}
}

// readCommitted makes the connections of a DSN run at READ COMMITTED, as those of Postgres do.
var readCommitted = map[devdb.Kind]string{
	devdb.MariaDB: "?tx_isolation=%27READ-COMMITTED%27", devdb.MySQL: "?transaction_isolation=%27READ-COMMITTED%27",
}

// FewerPermitsCountOneUnderWay lowers the number of permits while an acquisition that began under
// the larger number is under way at the server. With what is granted later it must fit the smaller
// one.
func (leaseTests) FewerPermitsCountOneUnderWay(t *testing.T, v *env) {
	const before, after = 5, 3
	l, other := v.as(v.DSN + readCommitted[v.Kind]).two(t)
	most := suite.Acquire(t, l, "k", dblock.WithPermits(before-1, before))
	sleeping := v.slowPermit(t, before)
	ctx := suite.Soon(t)
	underWay := suite.Begin(func() (*dblock.Lock, error) {
		return other.TryAcquire(ctx, "k", dblock.WithPermits(1, before))
	})
	suite.Until(t, "the acquisition is under way", func() bool { return v.Count(t, sleeping) > 0 })
	var set sync.WaitGroup
	set.Go(func() { assert.NoError(t, l.SetPermits(ctx, "k", after)) })
	time.Sleep(200 * time.Millisecond) // it waits for the acquisition
	suite.Release(t, most)
	held := takePermits(t, l, after)
	if lock, err := underWay(); err == nil {
		held = append(held, lock)
	} else {
		assert.True(t, isAny(err, dblock.ErrNotAcquired, dblock.ErrLimit), "the acquisition under way: %v", err)
	}
	set.Wait()
	for len(held) < after { // the others are free, or soon will be
		held = append(held, suite.Acquire(t, l, "k", dblock.WithPermits(1, after)))
	}
	held = append(held, takePermits(t, l, after)...)
	assert.Len(t, held, after)
	releaseTogether(t, held)
}

// slowPermit makes each grant of a permit take 5 s at the server. The query that it returns
// counts those under way.
func (v *env) slowPermit(t *testing.T, slot int) (sleeping string) {
	t.Helper()
	const update = "BEFORE UPDATE ON dblock_permit FOR EACH ROW "
	which := fmt.Sprintf("new.slot = %d AND new.handle IS NOT NULL", slot)
	if v.Kind == devdb.Postgres {
		v.Exec(t, "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(5); RETURN new; END'")
		v.Exec(t, "CREATE TRIGGER slow "+update+"WHEN ("+which+") EXECUTE FUNCTION slow()")
		return "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"
	}
	v.Exec(t, "CREATE TRIGGER slow "+update+"IF "+which+" THEN SET @slept = SLEEP(5); END IF")
	return "SELECT COUNT(*) FROM " + devdb.Processlist + " WHERE db = DATABASE() AND state = 'User sleep'"
}

// takePermits acquires permits, one at a time, until it is refused.
func takePermits(t *testing.T, l Leases, limit int) (locks []*dblock.Lock) {
	t.Helper()
	for {
		lock, err := l.TryAcquire(t.Context(), "k", dblock.WithPermits(1, limit))
		if err != nil {
			assert.True(t, isAny(err, dblock.ErrNotAcquired, dblock.ErrLimit), "%v", err)
			return locks
		}
		locks = append(locks, lock)
	}
}
