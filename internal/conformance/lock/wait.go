package lock

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// WakesAnotherProcess: a waiter learns of a release long before its poll, which is due after 30 s
// at the earliest.
func (contract) WakesAnotherProcess(t *testing.T, p Place) {
	a, b := p.process(t, LeaseOptions{}), p.process(t, LeaseOptions{Poll: time.Minute})
	lock := suite.Acquire(t, a, "k")
	waiter := suite.Waiter(t, b, "k")
	suite.Until(t, "b waits", func() bool { _, _, waiters := p.Rows(t); return waiters > 0 })
	time.Sleep(20 * time.Millisecond) // it may ask once more before it sleeps
	began := time.Now()
	suite.Release(t, lock)
	next := waiter()
	assert.Less(t, time.Since(began), 30*time.Second)
	suite.Release(t, next)
}

func (contract) AWaitEndsWithItsContext(t *testing.T, p Place) {
	a, b := p.process(t, LeaseOptions{Label: "a"}), p.process(t, LeaseOptions{})
	lock := suite.Acquire(t, a, "k")
	for name, l := range map[string]Leases{"another process": b, "the same process": a} {
		for within := 100 * time.Millisecond; ; within *= 2 {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			_, err := l.Acquire(ctx, "k")
			cancel()
			if suite.IsUnknown(err) { // the context ended while a statement was under way
				break
			}
			held := suite.IsHeld(t, err, "k")
			assert.ErrorIs(t, err, context.DeadlineExceeded, name)
			if held.Holder == (dblock.Holder{}) && within < time.Minute {
				continue // the server had not answered yet
			}
			if name == "another process" {
				assert.Equal(t, token(t, lock), held.Holder.Token)
			}
			break
		}
	}
	assert.NoError(t, lock.Context().Err())
	suite.Release(t, lock)
	suite.IsFree(t, b, "k")
}

// OneSweepsAtATime: one of two processes sweeps, and the other one when that one has stopped.
func (contract) OneSweepsAtATime(t *testing.T, p Place) {
	l := p.process(t, LeaseOptions{})
	assert.ErrorIs(t, l.RunSweeper(t.Context(), 0), dblock.ErrInvalid)
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	run := func(ctx context.Context) {
		l := p.process(t, LeaseOptions{})
		all.Go(func() { assert.ErrorIs(t, l.RunSweeper(ctx, time.Second), context.Canceled) })
	}
	sweeper := func(isNot string) (member string) {
		suite.Until(t, "a process sweeps", func() bool {
			held := suite.Must(l.Held(t.Context()))(t)
			if len(held) == 1 {
				member = held[0].Holder.Member
			}
			return len(held) == 1 && member != isNot
		})
		return member
	}
	firstCtx, stopFirst := context.WithCancel(ctx)
	run(firstCtx)
	first := sweeper("")
	run(ctx)
	suite.IsFree(t, l, "old")
	p.AgeLeases(t)
	suite.Until(t, "the key is swept, and the sweeper's own is not", func() bool {
		_, leases, _ := p.Rows(t)
		return leases == 1
	})
	assert.Equal(t, first, sweeper(""))
	stopFirst()
	sweeper(first)
}

// AReleaseBesideAWait commits a release that did not see a waiter, after the waiter asked. The
// release wakes no process. The waiter finds out before its next regular poll, which comes after
// half a minute at the earliest.
func (leaseTests) AReleaseBesideAWait(t *testing.T, v *env) {
	const waiters, tickets = "SELECT count(*) FROM dblock_lease_waiter", "SELECT count(*) FROM dblock_ticket"
	const release = "UPDATE dblock_lease SET handle = NULL, member_id = NULL, held_until = NULL"
	one := []dblock.Option{dblock.WithPermits(1, 1)}
	for name, c := range map[string]struct {
		held, wanted   []dblock.Option
		release, waits string
	}{
		"exclusive": {nil, nil, release, waiters},
		"fair":      {nil, nil, release, tickets},
		"shared":    {[]dblock.Option{dblock.WithShared()}, nil, "DELETE FROM dblock_reader", waiters},
		"permits": {one, one,
			"UPDATE dblock_permit SET handle = NULL, together = 0, member_id = NULL, held_until = NULL", waiters},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := v.e.env(t)
			o := LeaseOptions{Fair: name == "fair", Poll: time.Minute}
			a, b := v.process(t, o), v.process(t, o)
			held := suite.Acquire(t, a, "k", c.held...)
			tx := v.Tx(t, sql.LevelDefault, c.release)
			ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
			defer cancel()
			acquired := suite.Begin(func() (*dblock.Lock, error) { return b.Acquire(ctx, "k", c.wanted...) })
			suite.Until(t, "the wait is noted", func() bool { return v.Count(t, c.waits) > 0 })
			time.Sleep(50 * time.Millisecond) // by then it has asked once more
			assert.NoError(t, tx.Commit())
			suite.Release(t, suite.Must(acquired())(t))
			_ = held.Release(t.Context()) // lost
		})
	}
}

// LockedWaitersStallNoOthers: another transaction has locked the rows that say that a process waits
// for two keys, and waits for these begin and end. The process still learns of the release of a
// third key. A statement that waited for the locked rows would take 10 s.
func (leaseTests) LockedWaitersStallNoOthers(t *testing.T, v *env) {
	a := v.process(t, LeaseOptions{TTL: time.Minute})
	b := v.process(t, LeaseOptions{TTL: time.Minute, Poll: time.Minute})
	keys := []string{"locked 1", "locked 2"}
	held := []*dblock.Lock{suite.Acquire(t, a, keys[0]), suite.Acquire(t, a, keys[1])}
	third := suite.Acquire(t, a, "free")
	ctx, end := context.WithCancel(suite.Soon(t))
	first, endFirst := context.WithCancel(ctx)
	var waits sync.WaitGroup
	defer waits.Wait()
	defer end()
	for _, key := range keys {
		waits.Go(func() {
			_, _ = b.Acquire(first, key)
			for ctx.Err() == nil {
				again, endAgain := context.WithTimeout(ctx, 100*time.Millisecond)
				_, _ = b.Acquire(again, key)
				endAgain()
			}
		})
	}
	const waited = "SELECT count(*) FROM dblock_lease_waiter WHERE lease_key LIKE '"
	v.Until(t, waited+"locked%'", 2)
	tx := v.Tx(t, sql.LevelReadCommitted, "SELECT lease_key FROM dblock_lease_waiter FOR UPDATE") // rows, and no gaps
	endFirst()
	began, waiter := time.Now(), suite.Waiter(t, b, "free")
	v.Until(t, waited+"free'", 1)
	suite.Release(t, third)
	suite.Release(t, waiter())
	assert.Less(t, time.Since(began), 8*time.Second, "a wait for another key, beside locked rows")
	end()
	waits.Wait()
	assert.NoError(t, tx.Rollback())
	for _, lock := range held {
		suite.Release(t, lock)
	}
}

// OthersGetTheirTurn has a caller of another process wait among many of the holder's own, which
// come again and again. Without tickets a process serves its own for a turn, and then the others.
func (leaseTests) OthersGetTheirTurn(t *testing.T, v *env) {
	const own = 20
	a, b := v.two(t)
	held := suite.Acquire(t, a, "k")
	other := suite.Waiter(t, b, "k")
	v.Until(t, "SELECT count(*) FROM dblock_lease_waiter", 1)
	ctx, stop := context.WithCancel(t.Context())
	crowd := suite.Beside(func() {
		suite.Crowd(own, func(int) {
			for ctx.Err() == nil {
				if lock, err := a.Acquire(ctx, "k"); err == nil {
					suite.Release(t, lock)
				}
			}
		})
	})
	suite.Release(t, held)
	lock := other()
	stop()
	suite.Release(t, lock)
	crowd()
}
