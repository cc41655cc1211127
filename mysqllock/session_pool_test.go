package mysqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/mysqllock"
)

// TestSessionsLeaveAConnectionToTheHost has session locks be held, and waited for, with pools of
// few connections: the host gets a connection all the time.
func TestSessionsLeaveAConnectionToTheHost(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			dsn := testdb.DSN(t, kind)
			for conns, serverQueue := range map[int]bool{2: false, 4: true, 8: false} {
				t.Run(fmt.Sprint(conns), func(t *testing.T) {
					crowdOnSmallPool(t, dsn, conns, serverQueue)
				})
			}
		})
	}
}

func crowdOnSmallPool(t *testing.T, dsn string, conns int, serverQueue bool) {
	const keys = 40
	host, others := smallPool(t, dsn, conns), smallPool(t, dsn, 0)
	a, b := sessionOn(t, others, mysqllock.SessionOptions{}), sessionOn(t, host, mysqllock.SessionOptions{ServerQueue: serverQueue})
	lock, err := a.Acquire(t.Context(), "held")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	var callers sync.WaitGroup
	for i := range keys {
		callers.Go(func() {
			_, err := b.Acquire(ctx, "held")
			if !errors.Is(err, dblock.ErrNotAcquired) && !errors.Is(err, dblock.ErrOverloaded) {
				t.Errorf("a call that waits: %v", err)
			}
		})
		next, err := b.Acquire(ctx, fmt.Sprint(i))
		if err != nil {
			t.Errorf("key %d of a pool of %d: %v", i, conns, err)
			continue
		}
		defer func() { _ = next.Release(context.Background()) }()
	}
	for range 3 {
		query, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		var one int
		if err := host.QueryRowContext(query, "SELECT 1").Scan(&one); err != nil {
			t.Errorf("the host gets no connection of a pool of %d: %v", conns, err)
		}
		cancel()
		time.Sleep(20 * time.Millisecond)
	}
	stop()
	callers.Wait()
	if err := lock.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func smallPool(t *testing.T, dsn string, conns int) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(conns)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// TestSessionsRefuseAPoolThatIsTooSmall counts the connections before it takes one.
func TestSessionsRefuseAPoolThatIsTooSmall(t *testing.T) {
	t.Parallel()
	for field, bad := range map[string][]struct {
		pool int
		o    mysqllock.SessionOptions
	}{
		"pool":                    {{1, mysqllock.SessionOptions{}}, {2, mysqllock.SessionOptions{ServerQueue: true}}},
		"SessionOptions.MaxConns": {{4, mysqllock.SessionOptions{MaxConns: 4}}, {0, mysqllock.SessionOptions{MaxConns: 1, ServerQueue: true}}},
	} {
		for _, b := range bad {
			db := sql.OpenDB(nil)
			db.SetMaxOpenConns(b.pool)
			var invalid *dblock.InvalidError
			if _, err := mysqllock.NewSessionLocker(t.Context(), db, b.o); !errors.As(err, &invalid) || invalid.Field != field {
				t.Errorf("a pool of %d with %+v: %v", b.pool, b.o, err)
			}
			_ = db.Close()
		}
	}
}
