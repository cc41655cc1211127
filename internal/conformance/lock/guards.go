package lock

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// written makes a table, and returns a statement that writes to it and a count of its rows.
func (v *env) written(t *testing.T) (write string, count func() int64) {
	t.Helper()
	v.Exec(t, "CREATE TABLE written (n INT)")
	return "INSERT INTO written VALUES (1)", func() int64 { return v.Count(t, "SELECT count(*) FROM written") }
}

// AGuardFencesOff: a process that lost the lease writes nothing.
func (leaseTests) AGuardFencesOff(t *testing.T, v *env) {
	write, count := v.written(t)
	a, b := v.two(t)
	lock := suite.Acquire(t, a, "k")
	require.NoError(t, v.e.Guarded(t.Context(), a, lock, write, func() {}))
	v.ExpireMembers(t) // a paused for too long, and has not noticed
	next := suite.Acquire(t, b, "k")
	assert.ErrorIs(t, v.e.Guarded(t.Context(), a, lock, write, func() {}), dblock.ErrFenced)
	assert.EqualValues(t, 1, count())
	assert.NoError(t, v.e.Guarded(t.Context(), b, next, write, func() {}))
	suite.Release(t, next)
	_ = lock.Release(t.Context())
}

// AGuardKeepsOthersOut: no process takes the lease over while a guarded transaction is open, though
// the holder's member is gone.
func (leaseTests) AGuardKeepsOthersOut(t *testing.T, v *env) {
	write, _ := v.written(t)
	a, b := v.two(t)
	lock := suite.Acquire(t, a, "k")
	assert.NoError(t, v.e.Guarded(t.Context(), a, lock, write, func() {
		v.ForgetMembers(t)
		for range 3 {
			assert.Error(t, suite.Second(b.TryAcquire(t.Context(), "k")))
		}
	}))
	suite.IsFree(t, b, "k")
	_ = lock.Release(t.Context())
}

// ARefusedGuardEndsTheLock: the holder learns of it at once, long before the next heartbeat.
func (leaseTests) ARefusedGuardEndsTheLock(t *testing.T, v *env) {
	a, b := v.process(t, LeaseOptions{TTL: time.Hour}), v.process(t, LeaseOptions{})
	for _, opts := range [][]dblock.Option{nil, {dblock.WithShared()}, {dblock.WithPermits(1, 2)}} {
		lock := suite.Acquire(t, a, "k", opts...)
		require.NoError(t, v.Check(t.Context(), a, lock))
		require.NoError(t, b.ForceRelease(t.Context(), "k", token(t, lock)))
		assert.ErrorIs(t, v.Check(t.Context(), a, lock), dblock.ErrFenced)
		suite.IsLost(t, lock, dblock.ReasonStolen)
		assert.ErrorIs(t, v.Check(t.Context(), a, lock), dblock.ErrLost)
	}
}

// NeverCommitsWhatIsLost loses the lock inside a guarded transaction. The outcome is known, because
// the commit is never sent.
func (leaseTests) NeverCommitsWhatIsLost(t *testing.T, v *env) {
	write, count := v.written(t)
	l := v.process(t, LeaseOptions{TTL: 6 * time.Second})
	for range 2 {
		lock := suite.Acquire(t, l, "k")
		err := v.e.Guarded(t.Context(), l, lock, write, func() {
			v.ForgetMembers(t)
			suite.Wait(t, lock.Context().Done(), "its loss")
			assert.ErrorIs(t, lock.Release(t.Context()), dblock.ErrLost) // after which the context of the transaction has ended
		})
		assert.ErrorIs(t, err, dblock.ErrLost)
		assert.NotErrorIs(t, err, dblock.ErrOutcomeUnknown)
	}
	assert.Zero(t, count())
}

// AGuardedTxOfAnEndedLockIsLost: the error says that the lock was lost or released.
func (leaseTests) AGuardedTxOfAnEndedLockIsLost(t *testing.T, v *env) {
	l := v.process(t, LeaseOptions{})
	guarded := func(lock *dblock.Lock, within func()) error {
		return v.e.Guarded(t.Context(), l, lock, "SELECT 1", within)
	}
	released := suite.Acquire(t, l, "k")
	suite.Release(t, released)
	endedFor(t, guarded(released, func() { t.Error("ran under a released lock") }), dblock.ReasonReleased)
	within := suite.Acquire(t, l, "k")
	assert.ErrorIs(t, guarded(within, func() { suite.Release(t, within) }), dblock.ErrLost, "released within")
	ended := suite.Acquire(t, l, "k", dblock.WithMaxHold(20*time.Millisecond))
	suite.IsLost(t, ended, dblock.ReasonTimeUp)
	endedFor(t, guarded(ended, func() {}), dblock.ReasonTimeUp)
	assert.Error(t, ended.Bind(t.Context()).Err(), "a context that is bound to an ended lock")
}

// fenceCheck is a function of the driver's Guards, for a resource.
type fenceCheck func(ctx context.Context, tx *sql.Tx, f dblock.Fence, resource string) error

// fenceTx commits a transaction that begins with a check of the lock's fence.
func fenceTx(ctx context.Context, db *sql.DB, lock *dblock.Lock, check fenceCheck, resource string, then func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	f, _ := lock.Fence()
	if err := check(ctx, tx, f, resource); err != nil {
		return err
	}
	if err := then(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// fence runs AdvanceFence or CheckFence in a transaction of its own.
func (v *env) fence(t *testing.T, check fenceCheck, lock *dblock.Lock, resource string) error {
	t.Helper()
	return fenceTx(t.Context(), v.DB.DB, lock, check, resource, func(*sql.Tx) error { return nil })
}

// ARaisedFenceKeepsOthersOut: once the next holder has raised its fence, the one before it writes
// nothing, in whatever database that is.
func (leaseTests) ARaisedFenceKeepsOthersOut(t *testing.T, v *env) {
	l := v.process(t, LeaseOptions{})
	old := suite.Acquire(t, l, "k")
	suite.Release(t, old)
	next := suite.Acquire(t, l, "k")
	for i, step := range []struct {
		check  fenceCheck
		lock   *dblock.Lock
		fenced bool
	}{
		{v.e.CheckFence, old, true}, // not raised at all
		{v.e.AdvanceFence, old, false},
		{v.e.AdvanceFence, old, false}, // again
		{v.e.CheckFence, old, false},
		{v.e.CheckFence, next, true}, // not raised by this holder
		{v.e.AdvanceFence, next, false},
		{v.e.CheckFence, next, false},
		{v.e.CheckFence, old, true},
		{v.e.AdvanceFence, old, true},
		{v.e.CheckFence, next, false},
	} {
		err := v.fence(t, step.check, step.lock, "report")
		if step.fenced {
			assert.ErrorIs(t, err, dblock.ErrFenced, "step %d", i)
		} else {
			assert.NoError(t, err, "step %d", i)
		}
	}
	assert.NoError(t, v.fence(t, v.e.AdvanceFence, old, "another resource"))
	assert.ErrorIs(t, v.fence(t, v.e.AdvanceFence, old, ""), dblock.ErrInvalid, "no resource")
	suite.Release(t, next)
}

// ReadersRaiseTogether: two readers raise a fence, and both pass until a writer raises it. Permits
// cannot, as several holders have them at once.
func (leaseTests) ReadersRaiseTogether(t *testing.T, v *env) {
	a, b := v.two(t)
	first, second := suite.Acquire(t, a, "k", dblock.WithShared()), suite.Acquire(t, b, "k", dblock.WithShared())
	for _, check := range []fenceCheck{v.e.AdvanceFence, v.e.CheckFence, v.e.AdvanceFence, v.e.CheckFence} {
		assert.NoError(t, v.fence(t, check, first, "report"))
		assert.NoError(t, v.fence(t, check, second, "report"))
	}
	suite.Release(t, first)
	suite.Release(t, second)
	writer := suite.Acquire(t, a, "k")
	assert.NoError(t, v.fence(t, v.e.AdvanceFence, writer, "report"))
	assert.ErrorIs(t, v.fence(t, v.e.CheckFence, second, "report"), dblock.ErrFenced, "a reader after a writer")
	assert.NoError(t, v.fence(t, v.e.CheckFence, writer, "report"))
	suite.Release(t, writer)
	permits := suite.Acquire(t, a, "k", dblock.WithPermits(1, 2))
	for _, check := range []fenceCheck{v.e.AdvanceFence, v.e.CheckFence} {
		assert.ErrorIs(t, v.fence(t, check, permits, "report"), dblock.ErrUnsupported)
	}
	suite.Release(t, permits)
}
