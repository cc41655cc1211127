package pglock_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/pglock"
)

// TestASessionOnAServerWithItsDefaults has as many locks as its connections may carry, long before
// the server's table of locks is full, which would keep every caller out.
func TestASessionOnAServerWithItsDefaults(t *testing.T) {
	t.Parallel()
	server := testdb.Own(t, devdb.Postgres, "-c", "max_connections=100", "-c", "max_locks_per_transaction=64")
	if server == nil {
		return
	}
	pool, err := pgxpool.New(t.Context(), server.AdminDSN())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	l, err := pglock.NewSessionLocker(t.Context(), pool, pglock.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // with all locks still in use
		_ = l.Close(ctx)
	}()
	const most = 4 * 64 * 100 / 5
	var callers sync.WaitGroup
	for i := range most {
		callers.Go(func() {
			if _, err := l.Acquire(t.Context(), strconv.Itoa(i)); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	if _, err := l.Acquire(t.Context(), "one more"); !errors.Is(err, dblock.ErrOverloaded) {
		t.Errorf("got %v", err)
	}
	var locks, conns int
	err = pool.QueryRow(t.Context(), "SELECT count(*), count(DISTINCT pid) FROM pg_locks WHERE locktype = 'advisory'").Scan(&locks, &conns)
	if err != nil || locks != most || conns != 4 {
		t.Errorf("%d locks on %d connections, %v", locks, conns, err)
	}
}
