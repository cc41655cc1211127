package lock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// ServesInOrder has calls of several processes wait, one after the other; every fourth gives up. A
// holder that could hand over to its own process does not.
func (contract) ServesInOrder(t *testing.T, p Place) {
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
		suite.IsTaken(t, l, "k")
		assert.EqualValues(t, len(processes), suite.Must(l.Held(t.Context()))(t)[0].Waiters, "processes that wait")
	}
	giveUp()
	for _, w := range leave {
		err := w.refused()
		assert.True(t, errors.Is(err, dblock.ErrNotAcquired) || suite.IsUnknown(err), "%v", err)
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
	suite.IsFree(t, processes[1], "k")
	assert.Zero(t, p.Tickets(t))
}

// FairAmongOthers refuses what a fair Locker lacks, takes over from the dead, and keeps deadlines.
func (contract) FairAmongOthers(t *testing.T, p Place) {
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
	suite.IsFree(t, b, "k")
	suite.IsLost(t, ends, dblock.ReasonTimeUp)
}

// CostsOneGrantEach counts the round trips of grants by ticket.
func (leaseTests) CostsOneGrantEach(t *testing.T, v *env) {
	const processes, each = 4, 25
	dialers := make([]faultconn.Dialer, processes)
	var all []Leases
	for i := range dialers {
		all = append(all, v.processOn(t, &dialers[i], LeaseOptions{Fair: true, TTL: time.Hour, Poll: time.Second}))
	}
	first := suite.Acquire(t, all[0], "k")
	var calls sync.WaitGroup
	for i := range processes * each {
		calls.Go(func() {
			if lock, err := all[i%processes].Acquire(suite.Soon(t), "k"); assert.NoError(t, err) {
				suite.Release(t, lock)
			}
		})
	}
	v.untilTickets(t, processes*each)
	for i := range dialers {
		dialers[i].Arm(0, 0, nil)
	}
	began := time.Now()
	suite.Release(t, first)
	calls.Wait()
	trips, took := 0, time.Since(began)
	for i := range dialers {
		trips += dialers[i].Writes()
	}
	polls := processes * int(took/time.Second+1)
	if !v.Postgres() {
		polls *= 100 // a waiter that nothing wakes asks 100 times a second at most
	}
	assert.LessOrEqual(t, trips, 6*processes*each+polls, "round trips of %d grants in %v", processes*each, took)
}

// WhoGivesUpIsServed has a call give up while a transaction that is still open grants it the key.
func (leaseTests) WhoGivesUpIsServed(t *testing.T, v *env) {
	a := v.process(t, LeaseOptions{Fair: true})
	dialer := &faultconn.Dialer{Watch: "Tickets :execrows"} // of the statements that withdraw
	b := v.processOn(t, dialer, LeaseOptions{Fair: true})
	held := suite.Acquire(t, a, "k")
	ctx, giveUp := context.WithCancel(suite.Soon(t))
	w := startWaiter(ctx, b, "k")
	v.untilTickets(t, 1)
	served, commit := v.serveByHand(t, "token = token + 1, held_until = NULL", "handle IS NOT NULL")
	require.True(t, served)
	giveUp()
	if err := w.refused(); !errors.Is(err, dblock.ErrOutcomeUnknown) { // the ticket had no answer yet
		suite.IsHeld(t, err, "k")
	}
	suite.Until(t, "a withdrawal has met the locked ticket", func() bool {
		if v.Postgres() {
			return v.Count(t, suite.RowWaits(v.Kind)) > 0
		}
		return dialer.Watched() >= 2 // it fails, and is sent again immediately
	})
	commit()
	suite.IsFree(t, a, "k")
	_ = held.Release(t.Context()) // it knows of nothing
}

// ServedTooLate has a call learn that it was served when its time is up already.
func (faultTests) ServedTooLate(t *testing.T, v *env) {
	const hold = 500 * time.Millisecond
	a, b := v.process(t, LeaseOptions{Fair: true}), v.process(t, LeaseOptions{Fair: true})
	held := suite.Acquire(t, a, "k")
	w := startWaiter(suite.Soon(t), b, "k", dblock.WithMaxHold(hold))
	v.untilTickets(t, 1)
	served, commit := v.serveByHand(t, "token = token + 1, held_until = '2000-01-01'", "handle IS NOT NULL")
	require.True(t, served)
	commit()
	lock := w.acquired(t)
	assert.LessOrEqual(t, time.Until(lock.ValidUntil()), hold)
	_ = lock.Release(t.Context())
	_ = held.Release(t.Context()) // it knows of nothing
}

// serveByHand grants the key to its only waiter, in a transaction that is open until commit.
func (v *env) serveByHand(t *testing.T, set, where string) (served bool, commit func()) {
	t.Helper()
	tx := suite.Must(v.DB.BeginTx(t.Context(), nil))(t)
	t.Cleanup(func() { _ = tx.Rollback() })
	r := suite.Must(tx.ExecContext(t.Context(), "UPDATE dblock_lease SET "+set+
		`, handle = (SELECT q.handle FROM dblock_ticket q), member_id = (SELECT q.member_id FROM dblock_ticket q)
		WHERE lease_key = 'k' AND `+where))(t)
	suite.Must(tx.ExecContext(t.Context(), "DELETE FROM dblock_ticket"))(t)
	if suite.Must(r.RowsAffected())(t) != 1 {
		require.NoError(t, tx.Rollback())
		return false, nil
	}
	return true, func() { require.NoError(t, tx.Commit()) }
}

// AWaiterServedBesideReaders grants a key to a waiting call while a reader holds it, as a process
// of an older version may. The call gives the key back, waits again, and acquires it after the
// reader.
func (leaseTests) AWaiterServedBesideReaders(t *testing.T, v *env) {
	reader := suite.Acquire(t, v.process(t, LeaseOptions{}), "k", dblock.WithShared())
	w := startWaiter(suite.Soon(t), v.process(t, LeaseOptions{Fair: true}), "k")
	suite.Until(t, "the waiter was served", func() bool {
		v.untilTickets(t, 1)
		served, commit := v.serveByHand(t, "token = token", "shared AND handle IS NULL")
		if served {
			commit()
		}
		return served
	})
	suite.Until(t, "the call waits again", func() bool {
		select {
		case <-w.done:
			t.Fatal("the key was acquired beside a reader")
		default:
		}
		return v.Tickets(t) == 1
	})
	suite.Release(t, reader)
	suite.Release(t, w.acquired(t))
}

// AWaitingWriterDied kills a writer that has made itself the holder of a key and waits for a
// reader.
func (leaseTests) AWaitingWriterDied(t *testing.T, v *env) {
	l := v.process(t, LeaseOptions{})
	dies := func() bool { // unless another writer has the row: its member does not exist
		return suite.Must(suite.Must(v.DB.ExecContext(t.Context(), `UPDATE dblock_lease
			SET handle = (SELECT r.handle FROM dblock_reader r WHERE r.lease_key = 'k'),
			    member_id = (SELECT r.handle FROM dblock_reader r WHERE r.lease_key = 'k')
			WHERE lease_key = 'k' AND shared AND handle IS NULL`))(t).RowsAffected())(t) == 1
	}
	reader := suite.Acquire(t, l, "k", dblock.WithShared())
	w := startWaiter(suite.Soon(t), v.process(t, LeaseOptions{Fair: true}), "k")
	v.untilTickets(t, 1)
	suite.Until(t, "a writer has died", dies)
	suite.Release(t, reader)
	suite.Release(t, w.acquired(t))

	reader = suite.Acquire(t, l, "k", dblock.WithShared())
	suite.Until(t, "a writer has died", dies)
	suite.Release(t, reader)
	suite.Release(t, acquireSet(t, l, []string{"j", "k"}))
}
