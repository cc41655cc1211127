package pglock_test

import (
	"context"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/pglock"
)

// TestWhoWaitsPinsNoSnapshot: the server may remove what is deleted meanwhile. In the server's own line it may not, which is the
// control.
func TestWhoWaitsPinsNoSnapshot(t *testing.T) {
	t.Parallel()
	for label, queued := range map[string]bool{"asks": false, "in line": true} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			ctx := soon(t)
			pool := testdb.Postgres(t)
			open := func(o pglock.SessionOptions) *pglock.Session {
				s, err := pglock.NewSession(ctx, pool, o)
				works(t, err)
				t.Cleanup(func() { _ = s.Close(context.Background()) })
				return s
			}
			holder := open(pglock.SessionOptions{})
			waiter := open(pglock.SessionOptions{Label: label, ServerQueue: queued, Poll: time.Minute})
			lock, err := holder.Acquire(ctx, "k")
			works(t, err)
			got := make(chan error, 1)
			go func() {
				lock, err := waiter.Acquire(ctx, "k")
				if err == nil {
					err = lock.Release(ctx)
				}
				got <- err
			}()
			// What one who waits leaves at the server: what it waits for or, if it asks, that it does.
			const look = `SELECT count(*) FILTER (WHERE EXISTS (SELECT FROM pg_locks l WHERE l.pid = a.pid AND l.locktype = 'advisory')),
				count(*) FILTER (WHERE a.backend_xmin IS NOT NULL) FROM pg_stat_activity a
				WHERE a.datname = current_database() AND a.application_name = $1`
			want := 0
			if queued {
				want = 1
			}
			for waits, pinned := 0, -1; waits == 0 || pinned != want; {
				works(t, pool.QueryRow(ctx, look, label).Scan(&waits, &pinned))
			}
			works(t, lock.Release(ctx))
			works(t, <-got)
		})
	}
}
