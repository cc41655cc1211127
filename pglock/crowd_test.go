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
	const crowd, ttl = 12, 2 * time.Second
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
			for began := time.Now(); time.Since(began) < 2*ttl; {
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
