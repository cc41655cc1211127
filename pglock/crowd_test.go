package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/pglock"
)

// TestACrowdStopsNoOthers: calls of one kind that wait for the server, more than there are
// connections, take no lock of the process, and keep no other call from a lock.
func TestACrowdStopsNoOthers(t *testing.T) {
	t.Parallel()
	const crowd, ttl = 12, 6 * time.Second
	tests := map[string]func(t *testing.T, host *pgxpool.Pool, l *pglock.LeaseLocker, locks []*dblock.Lock) (end func()){
		"Held while its table is locked": func(t *testing.T, host *pgxpool.Pool, l *pglock.LeaseLocker, _ []*dblock.Lock) func() {
			tx, err := host.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), "LOCK TABLE dblock_permit"); err != nil {
				t.Fatal(err)
			}
			var all sync.WaitGroup
			for range crowd {
				all.Go(func() {
					if _, err := l.Held(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			return func() { _ = tx.Rollback(t.Context()); all.Wait() }
		},
		"ExpireIn while guarded transactions are open": func(t *testing.T, _ *pgxpool.Pool, l *pglock.LeaseLocker, locks []*dblock.Lock) func() {
			goOn := make(chan struct{})
			var all, open sync.WaitGroup
			open.Add(len(locks))
			for _, lock := range locks {
				all.Go(func() {
					err := l.GuardedTx(t.Context(), lock, func(ctx context.Context, tx pgx.Tx) error {
						open.Done()
						for {
							select {
							case <-goOn:
								return nil
							case <-time.After(ttl / 10):
								if _, err := tx.Exec(ctx, "SELECT 1"); err != nil {
									return err
								}
							}
						}
					})
					if err != nil {
						t.Errorf("a guarded transaction: %v", err)
					}
				})
				all.Go(func() {
					open.Wait()
					for {
						select {
						case <-goOn:
							return
						case <-time.After(ttl / 10):
							if err := lock.ExpireIn(t.Context(), time.Hour); err != nil && !errors.Is(err, dblock.ErrBusy) && !errors.Is(err, dblock.ErrOutcomeUnknown) {
								t.Errorf("ExpireIn: %v", err)
							}
						}
					}
				})
			}
			open.Wait()
			return func() { close(goOn); all.Wait() }
		},
	}
	for name, begin := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := testdb.MigratedPostgres(t)
			cfg := host.Config()
			cfg.MaxConns = crowd + 2
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			l, err := pglock.NewLeaseLocker(t.Context(), pool, pglock.LeaseOptions{TTL: ttl})
			if err != nil {
				t.Fatal(err)
			}
			var locks []*dblock.Lock
			for i := range crowd {
				lock, err := l.Acquire(t.Context(), fmt.Sprint("k", i))
				if err != nil {
					t.Fatal(err)
				}
				locks = append(locks, lock)
			}
			end := begin(t, pool, l, locks)
			for began := time.Now(); time.Since(began) < ttl+2*time.Second; {
				other, err := l.Acquire(t.Context(), "other")
				if err != nil {
					t.Fatal(err)
				}
				if err := other.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
			end()
			for _, lock := range locks {
				if err := lock.Release(t.Context()); err != nil {
					t.Errorf("%s: %v", lock.Key(), err)
				}
			}
			if err := l.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestALockedRowStopsNoOthers: another transaction writes the row of one key, or inserts it, and
// does not end. Sets with that key, more than there are connections, wait; sets of others don't.
func TestALockedRowStopsNoOthers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		write  string
		exists bool
	}{
		"a row of a set":            {"UPDATE dblock_lease SET changed_at = changed_at", true},
		"the place of one of a set": {"INSERT INTO dblock_lease (lease_key, token) VALUES ('locked', 1)", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const crowd = 20
			host := testdb.MigratedPostgres(t)
			cfg := host.Config()
			cfg.MaxConns = 4
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			l, err := pglock.NewLeaseLocker(t.Context(), pool, pglock.LeaseOptions{TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			if c.exists {
				lock, err := l.Acquire(t.Context(), "locked")
				if err != nil {
					t.Fatal(err)
				}
				if err := lock.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			tx, err := host.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), c.write); err != nil {
				t.Fatal(err)
			}
			var all sync.WaitGroup
			for i := range crowd {
				all.Go(func() {
					lock, err := l.AcquireAll(t.Context(), []string{"locked", fmt.Sprint("with it ", i)})
					if err != nil {
						t.Error(err)
						return
					}
					if err := lock.Release(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // a statement that waits does so for half of the TTL
			defer cancel()
			for waits := c.exists; !waits; time.Sleep(time.Millisecond) { // for a row that is there nothing waits
				const query = "SELECT EXISTS (SELECT FROM pg_stat_activity a WHERE a.datname = current_database() AND a.wait_event_type = 'Lock')"
				if err := host.QueryRow(ctx, query).Scan(&waits); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 3 * crowd {
				lock, err := l.AcquireAll(ctx, []string{fmt.Sprint("other ", i), fmt.Sprint("more ", i)})
				if err != nil {
					t.Errorf("call %d: %v", i, err)
					break
				}
				if err := lock.Release(ctx); err != nil {
					t.Error(err)
				}
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Error(err)
			}
			all.Wait()
			if err := l.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
