package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
)

const (
	overlapProcesses = 8
	overlapCallers   = 3 // of each process
	overlapKeys      = 12
	overlapRounds    = 60 // of each caller, in a short run
	soakOverlap      = 1_000
)

// overlapsWithoutDeadlocks has processes acquire sets of the same keys at once, in each mode, some of the holders inside guarded
// transactions. The server counts deadlocks, also those that nobody is told of.
func overlapsWithoutDeadlocks(t *testing.T, v *env) {
	own, server := v.onAServerOfItsOwn(t)
	own.exec(t, "CREATE TABLE written (n INT)")
	rounds := overlapRounds
	if os.Getenv(suite.EnvSoak) != "" {
		rounds = soakOverlap
	}
	before := own.deadlocks(t)
	var acquired, guarded atomic.Int64
	var crowd sync.WaitGroup
	for range overlapProcesses {
		crowd.Go(func() {
			l, closePool, err := v.e.Open(t.Context(), own.dsn, LeaseOptions{TTL: time.Minute})
			if err != nil {
				t.Error(err)
				return
			}
			var callers sync.WaitGroup
			for range overlapCallers {
				callers.Go(func() {
					for range rounds {
						n, g := own.takeSome(t, l)
						acquired.Add(n)
						guarded.Add(g)
					}
				})
			}
			callers.Wait()
			if err := l.Close(t.Context()); err != nil {
				t.Error(err)
			}
			closePool()
		})
	}
	crowd.Wait()
	t.Logf("%d acquired, %d of them used in guarded transactions", acquired.Load(), guarded.Load())
	if guarded.Load() == 0 {
		t.Error("nothing was guarded: this shows nothing")
	}
	own.deadlock(t)
	if n := own.deadlocks(t) - before; n != 1 && server != nil {
		t.Errorf("the server saw %d deadlocks, want the one made on purpose", n)
	}
}

// takeSome asks for some keys at once, so that they share statements, and gives all that it got back at once.
func (v *env) takeSome(t *testing.T, l Leases) (acquired, guarded int64) {
	var mu sync.Mutex
	var locks []*dblock.Lock
	var asks sync.WaitGroup
	for _, i := range rand.Perm(overlapKeys)[:1+rand.IntN(5)] {
		asks.Go(func() {
			lock, err := l.TryAcquire(t.Context(), fmt.Sprint("k", i), anyMode()...)
			switch {
			case err == nil:
				mu.Lock()
				locks = append(locks, lock)
				mu.Unlock()
			case !errors.Is(err, dblock.ErrNotAcquired):
				t.Errorf("k%d: %v", i, err)
			}
		})
	}
	asks.Wait()
	for _, lock := range locks {
		asks.Go(func() {
			if rand.IntN(3) == 0 {
				if err := v.e.Guarded(t.Context(), l, lock, "INSERT INTO written VALUES (1)", func() {}); err != nil {
					t.Errorf("a guarded write under %q: %v", lock.Key(), err)
				}
				mu.Lock()
				guarded++
				mu.Unlock()
			}
			suite.Release(t, lock)
		})
	}
	asks.Wait()
	return int64(len(locks)), guarded
}

// anyMode is alone, as a reader, or with permits.
func anyMode() []dblock.Option {
	switch rand.IntN(3) {
	case 0:
		return []dblock.Option{dblock.WithShared()}
	case 1:
		return []dblock.Option{dblock.WithPermits(1+rand.IntN(2), 3)}
	default:
		return nil
	}
}

// deadlocks is how many the server has seen, in this database where it tells them apart.
func (v *env) deadlocks(t *testing.T) int64 {
	t.Helper()
	if v.e.Kind == devdb.Postgres {
		return v.count(t, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
	}
	return v.count(t, "SELECT count FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks'")
}

// deadlock makes one, and waits until it is counted.
func (v *env) deadlock(t *testing.T) {
	t.Helper()
	v.exec(t, "CREATE TABLE two (id INT PRIMARY KEY, n INT)")
	v.exec(t, "INSERT INTO two VALUES (1, 0), (2, 0)")
	var both, first sync.WaitGroup
	first.Add(2)
	var refused atomic.Int64
	for i := range 2 {
		both.Go(func() {
			tx, err := v.db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Error(err)
				first.Done()
				return
			}
			defer func() { _ = tx.Rollback() }()
			_, err = tx.ExecContext(t.Context(), fmt.Sprintf("UPDATE two SET n = 1 WHERE id = %d", 1+i))
			first.Done()
			first.Wait()
			if err == nil {
				_, err = tx.ExecContext(t.Context(), fmt.Sprintf("UPDATE two SET n = 1 WHERE id = %d", 2-i))
			}
			if err != nil && strings.Contains(strings.ToLower(err.Error()), "deadlock") {
				refused.Add(1)
			}
		})
	}
	both.Wait()
	if refused.Load() != 1 {
		t.Errorf("%d were refused for a deadlock", refused.Load())
	}
	if v.e.Kind != devdb.Postgres {
		return
	}
	v.db.SetMaxIdleConns(0) // sessions tell what they have counted when they end
	for ctx := suite.Soon(t); v.count(t, `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`) > 0; {
		if ctx.Err() != nil {
			t.Fatal("sessions do not end")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// oneLockedRowStallsNobody keeps one lease under a guard: statements that ask for it go on with the other keys that
// they carry. The control is a statement that waits for its rows.
func oneLockedRowStallsNobody(t *testing.T, v *env) {
	v.exec(t, "CREATE TABLE written (n INT)")
	holder := v.process(t, LeaseOptions{})
	lock := suite.Acquire(t, holder, "locked")
	suite.Release(t, suite.Acquire(t, holder, "waits"))
	control := make(chan error, 1)
	err := v.e.Guarded(t.Context(), holder, lock, "INSERT INTO written VALUES (1)", func() {
		v.exec(t, "DELETE FROM dblock_member") // else nobody would want its row
		go func() {
			_, err := v.db.ExecContext(t.Context(), "UPDATE dblock_lease SET label = '' WHERE lease_key IN ('locked', 'waits')")
			control <- err
		}()
		v.goRoundALock(t)
		select {
		case err := <-control:
			t.Errorf("a statement that waits for its rows has ended with %v: this shows nothing", err)
			control <- nil
		default:
		}
	})
	if err != nil && !errors.Is(err, dblock.ErrLost) {
		t.Error(err)
	}
	if err := <-control; err != nil {
		t.Error(err)
	}
	_ = lock.Release(context.WithoutCancel(t.Context()))
}

// goRoundALock has callers acquire keys of their own while others of the same process ask for the locked one.
func (v *env) goRoundALock(t *testing.T) {
	const rounds = 50
	ctx, stop := context.WithCancel(suite.Soon(t))
	var asks, works sync.WaitGroup
	for range 2 {
		l := v.process(t, LeaseOptions{})
		for range 2 {
			asks.Go(func() {
				for ctx.Err() == nil {
					if got, err := l.TryAcquire(ctx, "locked"); err == nil {
						t.Error("taken from under a guard")
						suite.Release(t, got)
					}
				}
			})
		}
		for c := range 4 {
			works.Go(func() {
				for i := range rounds {
					got, err := l.Acquire(ctx, fmt.Sprintf("%d of %p", c, l))
					if err != nil {
						t.Errorf("round %d: %v", i, err)
						return
					}
					suite.Release(t, got)
				}
			})
		}
	}
	works.Wait()
	stop()
	asks.Wait()
}
