package mysqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/mysqllock"
)

// TestSessionGivesConnectionsUp: connections that it took out of the host's pool never go back
// there, and their places do.
func TestSessionGivesConnectionsUp(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			db := testdb.MySQLOn(t, kind)
			l, err := mysqllock.NewSessionLocker(t.Context(), db, mysqllock.SessionOptions{})
			if err != nil {
				t.Fatal(err)
			}
			lock, err := l.Acquire(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			if n := db.Stats().InUse; n != 1 {
				t.Errorf("it has %d connections, want 1", n)
			}
			if err := errors.Join(lock.Release(t.Context()), l.Close(t.Context())); err != nil {
				t.Error(err)
			}
			if s := db.Stats(); s.InUse != 0 {
				t.Errorf("%d connections are in use after Close", s.InUse)
			}
			if _, err := mysqllock.NewSessionLocker(t.Context(), nil, mysqllock.SessionOptions{}); !errors.Is(err, dblock.ErrInvalid) {
				t.Errorf("no pool: %v", err)
			}
		})
	}
}

// TestServerQueueWaitsThroughReadTimeout waits at the server for longer than the readTimeout of the
// pool's DSN.
func TestServerQueueWaitsThroughReadTimeout(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			config, err := mysql.ParseDSN(testdb.DSN(t, kind))
			if err != nil {
				t.Fatal(err)
			}
			config.ReadTimeout = 4 * time.Second
			db, err := sql.Open("mysql", config.FormatDSN())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			a, b := sessionOn(t, db, mysqllock.SessionOptions{}), sessionOn(t, db, mysqllock.SessionOptions{ServerQueue: true})
			lock, err := a.Acquire(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			released := make(chan error, 1)
			time.AfterFunc(6*time.Second, func() { released <- lock.Release(context.Background()) })
			next, err := b.Acquire(t.Context(), "k")
			if err != nil {
				t.Errorf("Acquire returned %v", err)
			} else if err := next.Release(t.Context()); err != nil {
				t.Error(err)
			}
			if err := <-released; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSessionsUnderASelectLimit: session locks read all that the server says, whatever
// sql_select_limit their connections had.
func TestSessionsUnderASelectLimit(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			// With a limit of 0 not even a SELECT without a table has a row.
			db := smallPool(t, suite.Appended("sql_select_limit=0")(t, testdb.DSN(t, kind)), 0)
			l := sessionOn(t, db, mysqllock.SessionOptions{})
			lock, err := l.Acquire(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			if err := lock.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func sessionOn(t *testing.T, db *sql.DB, o mysqllock.SessionOptions) *mysqllock.SessionLocker {
	t.Helper()
	l, err := mysqllock.NewSessionLocker(t.Context(), db, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l
}
