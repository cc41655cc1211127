package mysql_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/testdb"
)

// each runs a test on every server of the family that is under test.
func each(t *testing.T, fn func(t *testing.T, kind devdb.Kind)) {
	t.Helper()
	t.Parallel()
	for _, kind := range testdb.Engines() {
		if kind != devdb.Postgres {
			t.Run(string(kind), func(t *testing.T) {
				t.Parallel()
				fn(t, kind)
			})
		}
	}
}

func connect(t *testing.T, db *sql.DB) *sql.Conn {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func inspect(t *testing.T, conn *sql.Conn) mysql.Server {
	t.Helper()
	s, err := mysql.Inspect(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func exec(t *testing.T, conn *sql.Conn, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

func TestInspectDirect(t *testing.T) {
	each(t, func(t *testing.T, kind devdb.Kind) {
		conn := connect(t, testdb.MySQLOn(t, kind))
		exec(t, conn, "SET SESSION wait_timeout = 1234", "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE", "SET time_zone = '+09:00'")
		s := inspect(t, conn)
		want := mysql.ProductMySQL
		if kind == devdb.MariaDB {
			want = mysql.ProductMariaDB
		}
		if s.Product != want || s.MariaDB != (kind == devdb.MariaDB) || s.Version == "" || s.Comment == "" {
			t.Errorf("%q, %q, %q", s.Product, s.Version, s.Comment)
		}
		if s.Proxied || s.ReadOnly || s.Galera || s.Group || s.SessionLocks() != nil {
			t.Errorf("%+v, %v", s, s.SessionLocks())
		}
		var id int64
		var database string
		if err := conn.QueryRowContext(t.Context(), "SELECT CONNECTION_ID(), DATABASE()").Scan(&id, &database); err != nil {
			t.Fatal(err)
		}
		if s.ConnID != id || s.Database != database || !strings.Contains(s.User, "@") {
			t.Errorf("connection %d, database %q, user %q; want %d, %q", s.ConnID, s.Database, s.User, id, database)
		}
		if s.Isolation != "SERIALIZABLE" || s.Seconds("wait_timeout") != 1234*time.Second || s.Number("max_connections") <= 0 {
			t.Errorf("isolation %q, settings %v", s.Isolation, s.Settings)
		}
		// One machine has one clock, so what is measured must be within its own bound.
		if s.ClockWithin <= 0 || s.ClockAhead.Abs() > s.ClockWithin+time.Millisecond {
			t.Errorf("the clock is ahead by %v, give or take %v", s.ClockAhead, s.ClockWithin)
		}
	})
}

func TestAReplicaIsSeen(t *testing.T) {
	each(t, func(t *testing.T, kind devdb.Kind) {
		own := testdb.Own(t, kind)
		if own == nil {
			return
		}
		conn := connectTo(t, own)
		if s := inspect(t, conn); s.SessionLocks() != nil {
			t.Errorf("before: %v", s.SessionLocks())
		}
		exec(t, conn, "SET GLOBAL read_only = 1")
		s := inspect(t, conn)
		if err := s.SessionLocks(); !s.ReadOnly || !errors.Is(err, dblock.ErrUnsupported) || !strings.Contains(err.Error(), "primary") {
			t.Errorf("%+v, %v", s, err)
		}
		if s.Database != "" {
			t.Errorf("database %q of a DSN without one", s.Database)
		}
	})
}
