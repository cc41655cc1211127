package lock

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// servesInOrder has calls of several processes wait, one after the other; every fourth gives up. A holder that could hand
// over to its own process does not.
func servesInOrder(t *testing.T, p Place) {
	const waiting, leaving = 12, 3
	var processes []Leases
	for range 3 {
		processes = append(processes, p.process(t, LeaseOptions{Fair: true}))
	}
	first := suite.Acquire(t, processes[0], "k")
	served := make(chan int, waiting)
	var calls sync.WaitGroup
	var leave []*waiter
	ctx, giveUp := context.WithCancel(suite.Soon(t))
	for i := range waiting {
		l := processes[i/2%3]
		if i%4 == 3 {
			leave = append(leave, startWaiter(ctx, l, "k"))
		} else {
			calls.Go(func() {
				if lock, err := l.Acquire(suite.Soon(t), "k"); assert.NoError(t, err) {
					served <- i
					suite.Release(t, lock)
				}
			})
		}
		p.untilTickets(t, i+1)
	}
	for _, l := range processes {
		isHeld(t, l, "k")
	}
	giveUp()
	for _, w := range leave {
		assert.ErrorIs(t, w.refused(), dblock.ErrNotAcquired)
	}
	p.untilTickets(t, waiting-leaving)
	suite.Release(t, first)
	calls.Wait()
	close(served)
	var order []int
	for i := range served {
		order = append(order, i)
	}
	assert.Len(t, order, waiting-leaving)
	assert.IsIncreasing(t, order)
	isFree(t, processes[1], "k")
	assert.Zero(t, p.Tickets(t))
}

// controlOvertakes is servesInOrder without tickets. It is unknown when the second caller waits, so this is tried again.
func controlOvertakes(t *testing.T, p Place) {
	a, b := p.process(t, LeaseOptions{}), p.process(t, LeaseOptions{})
	for range 20 {
		held := suite.Acquire(t, a, "k")
		served := make(chan string, 2)
		var calls sync.WaitGroup
		wait := func(name string, l Leases) {
			calls.Go(func() {
				if lock, err := l.Acquire(suite.Soon(t), "k"); assert.NoError(t, err) {
					served <- name
					suite.Release(t, lock)
				}
			})
		}
		wait("first", b)
		suite.Until(t, "the first one waits", func() bool { _, _, waiters := p.Rows(t); return waiters > 0 })
		wait("second", a)
		time.Sleep(50 * time.Millisecond)
		suite.Release(t, held)
		calls.Wait()
		if <-served == "second" {
			return
		}
	}
	t.Error("the first caller was always served first: this shows nothing")
}

// fairAmongOthers refuses what a fair Locker lacks, takes over from the dead, and keeps deadlines.
func fairAmongOthers(t *testing.T, p Place) {
	a, b := p.process(t, LeaseOptions{Fair: true}), p.process(t, LeaseOptions{Fair: true})
	assert.True(t, a.Caps().Fair && !a.Caps().Shared && !a.Caps().Permits)
	for _, o := range []dblock.Option{dblock.WithShared(), dblock.WithPermits(1, 2)} {
		assert.ErrorIs(t, suite.Second(a.Acquire(t.Context(), "k", o)), dblock.ErrUnsupported)
	}
	assert.ErrorIs(t, suite.Second(a.AcquireAll(t.Context(), []string{"k", "l"})), dblock.ErrUnsupported)
	first := suite.Acquire(t, a, "k")
	w := startWaiter(suite.Soon(t), b, "k", dblock.WithMaxHold(time.Minute))
	p.untilTickets(t, 1)
	suite.Release(t, first)
	second := w.acquired(t)
	assert.Greater(t, token(t, second), token(t, first))
	assert.LessOrEqual(t, time.Until(second.ValidUntil()), time.Minute)
	assert.NoError(t, p.Check(t.Context(), b, second))
	w = startWaiter(suite.Soon(t), a, "k")
	p.untilTickets(t, 1)
	p.ForgetMembers(t) // the waiter joins anew
	third := w.acquired(t)
	assert.Error(t, p.Check(t.Context(), b, second))
	_ = second.Release(t.Context()) // it learns of it by its next heartbeat
	suite.Release(t, third)
	ends := suite.Acquire(t, a, "k", dblock.WithMaxHold(50*time.Millisecond))
	isFree(t, b, "k")
	suite.IsLost(t, ends, dblock.Ended)
}

// fairCrowdIsExclusive has callers of one process, whose calls share statements, try one key while its holder releases it.
func fairCrowdIsExclusive(t *testing.T, p Place) {
	l := p.process(t, LeaseOptions{Fair: true})
	for range 10 {
		held := suite.Acquire(t, l, "k")
		var holders atomic.Int64
		suite.Crowd(17, func(i int) {
			if i == 0 {
				suite.Release(t, held)
				return
			}
			lock, err := l.TryAcquire(suite.Soon(t), "k")
			if err != nil {
				assert.ErrorIs(t, err, dblock.ErrNotAcquired)
				return
			}
			assert.EqualValues(t, 1, holders.Add(1), "callers hold the key")
			assert.NoError(t, p.Check(t.Context(), l, lock))
			holders.Add(-1)
			suite.Release(t, lock)
		})
	}
}

// fairCrowdIsServed has callers of one process wait for a key that has no row yet.
func fairCrowdIsServed(t *testing.T, p Place) {
	l := p.process(t, LeaseOptions{Fair: true})
	for round := range 4 {
		suite.Crowd(5, func(int) {
			if lock, err := l.Acquire(suite.Soon(t), fmt.Sprint("fresh", round)); assert.NoError(t, err) {
				suite.Release(t, lock)
			}
		})
	}
}
