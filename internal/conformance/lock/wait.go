package lock

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// servesThoseWhoWaitInLine: callers are served in the order of their calls. Callers that a busy
// machine delays may change places, so that one of three attempts must be in order.
func servesThoseWhoWaitInLine(t *testing.T, p Place) {
	const callers, attempts = 12, 3
	l := p.process(t, LeaseOptions{})
	var served []int
	for attempt := range attempts {
		key := fmt.Sprint("k", attempt)
		lock := suite.Acquire(t, l, key)
		var mu sync.Mutex
		var all sync.WaitGroup
		served = nil
		for i := range callers {
			ctx := &watched{Context: suite.Soon(t), looked: make(chan struct{})}
			all.Go(func() {
				lock, err := l.Acquire(ctx, key)
				if !assert.NoError(t, err) {
					return
				}
				mu.Lock()
				served = append(served, i)
				mu.Unlock()
				suite.Release(t, lock)
			})
			<-ctx.looked
			time.Sleep(20 * time.Millisecond) // a call may look at its context before it is in the queue
		}
		suite.Release(t, lock)
		all.Wait()
		assert.Len(t, served, callers)
		if slices.IsSorted(served) {
			return
		}
	}
	t.Errorf("served in the order %v", served)
}

// watched is a context that shows that a call has looked whether it ends.
type watched struct {
	context.Context
	once   sync.Once
	looked chan struct{}
}

func (w *watched) Done() <-chan struct{} {
	w.once.Do(func() { close(w.looked) })
	return w.Context.Done()
}

// wakesAnotherProcess: a waiter learns of a release long before its poll, which is due after 30 s
// at the earliest.
func wakesAnotherProcess(t *testing.T, p Place) {
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

func aWaitEndsWithItsContext(t *testing.T, p Place) {
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

// oneSweepsAtATime: one of two processes sweeps, and the other one when that one has stopped.
func oneSweepsAtATime(t *testing.T, p Place) {
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

// aReleaseBesideAWait commits a release that did not see a waiter, after the waiter asked. The
// release wakes no process. The waiter finds out before its next regular poll, which comes after
// half a minute at the earliest.
func aReleaseBesideAWait(t *testing.T, v *env) {
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
			tx := v.tx(t, sql.LevelDefault, c.release)
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

// lockedWaitersStallNoOthers: another transaction has locked the rows that say that a process waits
// for two keys, and waits for these begin and end. The process still learns of the release of a
// third key. A statement that waited for the locked rows would take 10 s.
func lockedWaitersStallNoOthers(t *testing.T, v *env) {
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
	tx := v.tx(t, sql.LevelReadCommitted, "SELECT lease_key FROM dblock_lease_waiter FOR UPDATE") // rows, and no gaps
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

// nobodyStarves has the callers of several processes acquire one key again and again, without
// tickets. None waits for more than five times the median. Which process comes next is chance, so
// that one of three attempts must hold.
func nobodyStarves(t *testing.T, v *env) {
	const attempts = 3
	var median, most time.Duration
	for n := range attempts {
		median, most = v.crowded(t, fmt.Sprint("k", n))
		if t.Logf("median %v, at most %v", median, most); most <= 5*median {
			return
		}
	}
	t.Errorf("one caller waited for %v, the median is %v", most, median)
}

// crowded returns how long callers waited for a key that all of them acquire.
func (v *env) crowded(t *testing.T, key string) (median, most time.Duration) {
	t.Helper()
	const processes, callers, rounds = 8, 25, 2
	var mu sync.Mutex
	var waits []time.Duration
	var all []Leases
	for range processes {
		all = append(all, v.process(t, LeaseOptions{Poll: time.Second}))
	}
	held := suite.Acquire(t, all[0], key)
	crowd := suite.Beside(func() {
		suite.Crowd(processes*callers, func(i int) {
			for range rounds {
				began := time.Now()
				lock, err := all[i%processes].Acquire(t.Context(), key)
				if !assert.NoError(t, err) {
					return
				}
				mu.Lock()
				waits = append(waits, time.Since(began))
				mu.Unlock()
				suite.Release(t, lock)
			}
		})
	})
	waiting := fmt.Sprintf("SELECT count(*) FROM dblock_lease_waiter WHERE lease_key = '%s'", key)
	suite.Until(t, "the other processes wait", func() bool { return v.Count(t, waiting) >= processes-1 })
	suite.Release(t, held)
	crowd()
	slices.Sort(waits)
	return waits[len(waits)/2], waits[len(waits)-1]
}
