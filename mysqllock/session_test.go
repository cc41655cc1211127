package mysqllock_test

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/mysqllock"
)

// TestSessionGivesConnectionsUp: connections that it took out of the host's pool never go back there, and their places do.
func TestSessionGivesConnectionsUp(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			db := testdb.MySQLOn(t, kind)
			l, err := mysqllock.NewSession(t.Context(), db, mysqllock.SessionOptions{})
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
			if _, err := mysqllock.NewSession(t.Context(), nil, mysqllock.SessionOptions{}); !errors.Is(err, dblock.ErrInvalid) {
				t.Errorf("no pool: %v", err)
			}
			one := sql.OpenDB(nil)
			one.SetMaxOpenConns(1)
			defer func() { _ = one.Close() }()
			if _, err := mysqllock.NewSession(t.Context(), one, mysqllock.SessionOptions{}); !errors.Is(err, dblock.ErrInvalid) {
				t.Errorf("a pool of one connection: %v", err)
			}
		})
	}
}
