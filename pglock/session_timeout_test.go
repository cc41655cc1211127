package pglock_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/pglock"
)

// TestServerQueueWaitsThroughTimeouts waits at the server for longer than the timeouts that the
// pool sets for its connections: statement_timeout and, since Postgres 17, transaction_timeout.
func TestServerQueueWaitsThroughTimeouts(t *testing.T) {
	t.Parallel()
	config := testdb.Postgres(t).Config()
	var has bool
	if err := testdb.Postgres(t).QueryRow(t.Context(), "SELECT current_setting('transaction_timeout', true) IS NOT NULL").Scan(&has); err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.RuntimeParams["statement_timeout"] = "300ms"
	if has {
		config.ConnConfig.RuntimeParams["transaction_timeout"] = "300ms"
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	var sessions [2]*pglock.SessionLocker
	for i := range sessions {
		l, err := pglock.NewSessionLocker(t.Context(), pool, pglock.SessionOptions{ServerQueue: i == 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := l.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		sessions[i] = l
	}
	lock, err := sessions[0].Acquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	released := make(chan error, 1)
	time.AfterFunc(time.Second, func() { released <- lock.Release(context.Background()) })
	next, err := sessions[1].Acquire(t.Context(), "k")
	if err != nil {
		t.Errorf("Acquire returned %v", err)
	} else if err := next.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-released; err != nil {
		t.Error(err)
	}
}
