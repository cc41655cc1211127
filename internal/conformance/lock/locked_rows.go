package lock

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
)

// lockedTTL bounds a statement to half of it, which is less than a call waits in these tests.
const lockedTTL = 8 * time.Second

// rowLocks are statements that lock the row of a key, which is there before or is made.
var rowLocks = []struct {
	name, statement string
	there           bool
}{
	{"made", "INSERT INTO dblock_lease (lease_key, token) VALUES ('%s', 1)", false},
	{"read", "SELECT token FROM dblock_lease WHERE lease_key = '%s' FOR UPDATE", true},
	{"changed", "UPDATE dblock_lease SET label = 'x' WHERE lease_key = '%s'", true},
	{"deleted", "DELETE FROM dblock_lease WHERE lease_key = '%s'", true},
}

// eachRowLock runs a test with each lock of a key's row, which another transaction has. The process
// belongs to the test.
func (v *env) eachRowLock(t *testing.T, name, key string, fair bool, with dblock.Option, test func(*testing.T, *env, Leases, *sql.Tx)) {
	for _, row := range rowLocks {
		t.Run(name+" "+row.name, func(t *testing.T) {
			t.Parallel()
			v := v.e.env(t)
			l := v.process(t, LeaseOptions{TTL: lockedTTL, Fair: fair})
			if row.there {
				suite.IsFree(t, l, key, with)
			}
			test(t, v, l, v.Tx(t, sql.LevelDefault, fmt.Sprintf(row.statement, key)))
		})
	}
}

// ALockedRowIsWaitedFor has another transaction lock the row of a key. A call that waits for the
// key waits until that transaction ends, and keys beside it are acquired.
func (leaseTests) ALockedRowIsWaitedFor(t *testing.T, v *env) {
	const n, locked = 40, "17"
	for name, with := range map[string]dblock.Option{"exclusive": dblock.WithLabel(""), "shared": dblock.WithShared()} {
		v.eachRowLock(t, name, locked, false, with, func(t *testing.T, v *env, l Leases, tx *sql.Tx) {
			other := v.process(t, LeaseOptions{TTL: lockedTTL})
			ends := waitsForTx(t, tx.Commit, func(ctx context.Context) (*dblock.Lock, error) {
				return other.Acquire(ctx, locked, with)
			})
			for range 2 {
				locks, errs := acquireTogether(t, l, n, func(i int) (string, []dblock.Option) {
					return fmt.Sprint(i), []dblock.Option{with}
				})
				assert.Len(t, locks, n-1)
				if assert.Len(t, errs, 1) {
					assert.ErrorIs(t, errs[0], dblock.ErrBusy)
					assert.NotErrorIs(t, errs[0], dblock.ErrNotAcquired)
					assert.NotContains(t, errs[0].Error(), "held by")
				}
				releaseTogether(t, locks)
			}
			ends()
		})
	}
}

// ALockedSetIsWaitedFor does the same for a set, and for calls that wait with tickets.
func (leaseTests) ALockedSetIsWaitedFor(t *testing.T, v *env) {
	for _, fair := range []bool{false, true} {
		name := fmt.Sprint("fair ", fair)
		v.eachRowLock(t, name, "k", fair, dblock.WithLabel(""), func(t *testing.T, v *env, l Leases, tx *sql.Tx) {
			ends := waitsForTx(t, tx.Commit, func(ctx context.Context) (*dblock.Lock, error) {
				if fair {
					return l.Acquire(ctx, "k")
				}
				return l.AcquireAll(ctx, []string{"a", "k", "z"})
			})
			suite.IsFree(t, l, "other")
			ends()
		})
	}
}

// LockedPermitsAreWaitedFor does the same for a semaphore.
func (leaseTests) LockedPermitsAreWaitedFor(t *testing.T, v *env) {
	one := dblock.WithPermits(1, 1)
	for name, statement := range map[string]string{
		"made":           "INSERT INTO dblock_semaphore (lease_key, permits) VALUES ('k', 1)",
		"its first made": "INSERT INTO dblock_permit (lease_key, slot) VALUES ('k', 1)",
		"changed":        "UPDATE dblock_semaphore SET changed_at = changed_at WHERE lease_key = 'k'",
		"read":           "SELECT permits FROM dblock_semaphore WHERE lease_key = 'k' FOR UPDATE",
		"all read":       "SELECT slot FROM dblock_permit WHERE lease_key = 'k' FOR UPDATE",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := v.e.env(t)
			l := v.process(t, LeaseOptions{TTL: lockedTTL})
			suite.IsFree(t, l, "other", one) // no row is made beside those that are locked
			if !slices.Contains([]string{"made", "its first made"}, name) {
				suite.IsFree(t, l, "k", one)
			}
			tx := v.Tx(t, sql.LevelDefault, statement)
			ends := waitsForTx(t, tx.Rollback, func(ctx context.Context) (*dblock.Lock, error) {
				return l.Acquire(ctx, "k", one)
			})
			suite.IsFree(t, l, "other", one)
			ends()
		})
	}
}

// ALockedGapIsWaitedFor has another transaction lock the gap in which a key's row would be. Only
// MySQL and MariaDB lock gaps.
func (leaseTests) ALockedGapIsWaitedFor(t *testing.T, v *env) {
	if v.Kind == devdb.Postgres {
		return
	}
	l := v.process(t, LeaseOptions{TTL: time.Second}) // less than twice the shortest bound of a wait that MySQL has
	suite.IsFree(t, l, "other")
	tx := v.Tx(t, sql.LevelDefault, "SELECT token FROM dblock_lease WHERE token > 0 FOR UPDATE")
	waitsForTx(t, tx.Commit, func(ctx context.Context) (lock *dblock.Lock, err error) {
		for err = dblock.ErrOutcomeUnknown; suite.IsUnknown(err) && ctx.Err() == nil; { // with a short TTL a slow reply is too late
			lock, err = l.Acquire(ctx, "k")
		}
		return lock, err
	})()
}

// waitsForTx begins a call that is to wait for a transaction. ends checks that the call still
// waits, ends the transaction, and checks that the call then has its lock.
func waitsForTx(t *testing.T, end func() error, call func(context.Context) (*dblock.Lock, error)) (ends func()) {
	t.Helper()
	ctx := suite.Soon(t)
	waits := make(chan error, 1)
	go func() {
		lock, err := call(ctx)
		if err == nil {
			_ = lock.Release(context.WithoutCancel(ctx)) // lost, on a busy machine
		}
		waits <- err
	}()
	return func() {
		t.Helper()
		select {
		case err := <-waits:
			t.Fatalf("the wait ended before the transaction: %v", err)
		case <-time.After(lockedTTL * 5 / 8): // longer than any statement waits for a row
		}
		require.NoError(t, end())
		assert.NoError(t, <-waits, "after the transaction had ended")
	}
}

// OneLockedRowStallsNobody keeps one lease under a guard. Statements that ask for it go on with the
// other keys that they carry. The control is a statement that waits for its rows.
func (leaseTests) OneLockedRowStallsNobody(t *testing.T, v *env) {
	holder := v.process(t, LeaseOptions{})
	lock := suite.Acquire(t, holder, "locked")
	suite.IsFree(t, holder, "waits")
	control := make(chan error, 1)
	const update = "UPDATE dblock_lease SET label = '' WHERE lease_key IN ('locked', 'waits')"
	err := v.e.Guarded(t.Context(), holder, lock, "SELECT 1", func() {
		v.ForgetMembers(t) // so that others ask for its row
		go func() { control <- suite.Second(v.ExecContext(t.Context(), update)) }()
		v.acquireBesideALockedRow(t)
		assert.Empty(t, control, "a statement that waits for its rows has ended: this shows nothing")
	})
	assert.True(t, err == nil || isAny(err, dblock.ErrLost), "%v", err)
	assert.NoError(t, <-control)
	_ = lock.Release(context.WithoutCancel(t.Context()))
}

// acquireBesideALockedRow has callers acquire keys of their own while others of the same process
// ask for the locked one.
func (v *env) acquireBesideALockedRow(t *testing.T) {
	t.Helper()
	const processes, asking, working, rounds = 2, 2, 4, 25
	ctx, stop := context.WithCancel(suite.Soon(t))
	var asks, works sync.WaitGroup
	for p := range processes {
		l := v.process(t, LeaseOptions{})
		for range asking {
			asks.Go(func() {
				for ctx.Err() == nil {
					assert.Error(t, suite.Second(l.TryAcquire(ctx, "locked")), "acquired below a guard")
				}
			})
		}
		for c := range working {
			works.Go(func() {
				for range rounds {
					lock, err := l.Acquire(ctx, fmt.Sprintf("%d of %d", c, p))
					if !assert.NoError(t, err) {
						return
					}
					suite.Release(t, lock)
				}
			})
		}
	}
	works.Wait()
	stop()
	asks.Wait()
}

// ALockedTableLeavesNoSession has another session lock the table of the leases.
func (leaseTests) ALockedTableLeavesNoSession(t *testing.T, v *env) {
	const conns = 8
	l := v.process(t, LeaseOptions{TTL: lockedTTL})
	var n atomic.Int64
	v.BehindATable(t, "dblock_lease", conns, 0, map[string]func(context.Context) error{
		"acquire": func(ctx context.Context) error { return suite.Second(l.TryAcquire(ctx, fmt.Sprint(n.Add(1)))) },
		"held":    func(ctx context.Context) error { return suite.Second(l.Held(ctx)) },
		"holder":  func(ctx context.Context) error { return suite.Second(l.Holder(ctx, "x")) },
	})
	suite.IsFree(t, l, "x")
}
