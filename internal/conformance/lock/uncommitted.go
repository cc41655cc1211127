package lock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
)

// lockedTTL bounds a statement to half of it, which is less than a call waits in these tests.
const lockedTTL = 3 * time.Second

// rowLocks are statements with which another transaction locks the row of a key. The row of some is there before.
var rowLocks = []struct {
	name  string
	there bool
	lock  string
}{
	{"made", false, "INSERT INTO dblock_lease (lease_key, token) VALUES ('%s', 1)"},
	{"read", true, "SELECT token FROM dblock_lease WHERE lease_key = '%s' FOR UPDATE"},
	{"changed", true, "UPDATE dblock_lease SET label = 'x' WHERE lease_key = '%s'"},
	{"deleted", true, "DELETE FROM dblock_lease WHERE lease_key = '%s'"},
}

// aLockedRowIsWaitedFor has another transaction lock the row of a key, and not end. Calls that wait for the key wait
// until it ends. Keys beside it are acquired.
func aLockedRowIsWaitedFor(t *testing.T, v *env) {
	for name, with := range map[string]dblock.Option{"exclusive": dblock.WithLabel(""), "shared": dblock.WithShared()} {
		for _, row := range rowLocks {
			t.Run(name+" "+row.name, func(t *testing.T) {
				t.Parallel()
				v := v.e.env(t)
				l, other := v.process(t, LeaseOptions{TTL: lockedTTL}), v.process(t, LeaseOptions{TTL: lockedTTL})
				const locked = "17"
				if row.there {
					suite.Release(t, suite.Acquire(t, l, locked, with))
				}
				ends := v.waitsForAnother(t, (*sql.Tx).Commit, fmt.Sprintf(row.lock, locked), func(ctx context.Context) (*dblock.Lock, error) {
					return other.Acquire(ctx, locked, with)
				})
				const n = 40
				for range 3 {
					locks, errs := acquireTogether(t, l, n, func(i int) (string, []dblock.Option) {
						return fmt.Sprint(i), []dblock.Option{with}
					})
					if len(errs) > 2 {
						errs = errs[:2]
					}
					if len(locks) != n-1 || len(errs) != 1 || !errors.Is(errs[0], dblock.ErrBusy) || errors.Is(errs[0], dblock.ErrNotAcquired) {
						t.Errorf("%d of %d neighbors were acquired; errors: %v", len(locks), n-1, errs)
					}
					for _, err := range errs {
						if strings.Contains(err.Error(), "held by") {
							t.Errorf("nobody holds it: %v", err)
						}
					}
					releaseTogether(t, locks)
				}
				ends()
			})
		}
	}
}

// aLockedSetIsWaitedFor does the same for a set of keys, and for calls that wait in turn.
func aLockedSetIsWaitedFor(t *testing.T, v *env) {
	for _, fair := range []bool{false, true} {
		for _, row := range rowLocks {
			t.Run(fmt.Sprint(row.name, " fair ", fair), func(t *testing.T) {
				t.Parallel()
				v := v.e.env(t)
				l := v.process(t, LeaseOptions{TTL: lockedTTL, Fair: fair})
				if row.there {
					suite.Release(t, suite.Acquire(t, l, "k"))
				}
				ends := v.waitsForAnother(t, (*sql.Tx).Commit, fmt.Sprintf(row.lock, "k"), func(ctx context.Context) (*dblock.Lock, error) {
					if fair {
						return l.Acquire(ctx, "k")
					}
					return l.AcquireAll(ctx, []string{"a", "k", "z"})
				})
				suite.Release(t, suite.Acquire(t, l, "other"))
				ends()
			})
		}
	}
}

// lockedPermitsAreWaitedFor does the same for a semaphore.
func lockedPermitsAreWaitedFor(t *testing.T, v *env) {
	for name, lock := range map[string]string{
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
			suite.Release(t, suite.Acquire(t, l, "other", dblock.WithPermits(1, 1))) // no row is made beside those that are locked
			if name != "made" && name != "its first made" {
				suite.Release(t, suite.Acquire(t, l, "k", dblock.WithPermits(1, 1)))
			}
			ends := v.waitsForAnother(t, (*sql.Tx).Rollback, lock, func(ctx context.Context) (*dblock.Lock, error) {
				return l.Acquire(ctx, "k", dblock.WithPermits(1, 1))
			})
			suite.Release(t, suite.Acquire(t, l, "other", dblock.WithPermits(1, 1)))
			ends()
		})
	}
}

// aLockedGapIsWaitedFor has another transaction lock the place of a row that is not there: on MySQL and MariaDB nobody
// can make the row then. Keys that have rows are acquired.
func aLockedGapIsWaitedFor(t *testing.T, v *env) {
	if v.e.Kind == devdb.Postgres {
		return // it locks only rows
	}
	l := v.process(t, LeaseOptions{TTL: time.Second}) // less than twice the shortest bound of a wait that MySQL has
	suite.Release(t, suite.Acquire(t, l, "other"))
	ends := v.waitsForAnother(t, (*sql.Tx).Commit, "SELECT token FROM dblock_lease WHERE token > 0 FOR UPDATE", func(ctx context.Context) (*dblock.Lock, error) {
		return l.Acquire(ctx, "k")
	})
	ends()
}

// waitsForAnother begins a transaction with a statement, and a call that is to wait for its end. ends checks that the
// call still waits, ends the transaction, and checks that the call then has its lock.
func (v *env) waitsForAnother(
	t *testing.T, end func(*sql.Tx) error, statement string, call func(context.Context) (*dblock.Lock, error),
) (ends func()) {
	t.Helper()
	tx, err := v.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	if _, err := tx.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
	ctx := suite.Soon(t)
	waits := make(chan error, 1)
	go func() {
		lock, err := call(ctx)
		if err == nil {
			err = lock.Release(context.WithoutCancel(ctx))
		}
		waits <- err
	}()
	began := time.Now()
	return func() {
		t.Helper()
		select {
		case err := <-waits:
			t.Fatalf("the wait ended after %v: %v", time.Since(began), err)
		case <-time.After(lockedTTL): // longer than any statement waits for a row
		}
		if err := end(tx); err != nil {
			t.Fatal(err)
		}
		if err := <-waits; err != nil {
			t.Errorf("after the transaction had ended: %v", err)
		}
	}
}
