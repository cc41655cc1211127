package postgres_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/testdb"
)

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn
}

func look(t *testing.T, conn *pgx.Conn) postgres.Server {
	t.Helper()
	s, err := postgres.Probe(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestLookDirect(t *testing.T) {
	t.Parallel()
	conn := connect(t, testdb.PostgresURL(t))
	if _, err := conn.Exec(t.Context(), "SET statement_timeout = '90s'; SET default_transaction_isolation = 'serializable'"); err != nil {
		t.Fatal(err)
	}
	s := look(t, conn)
	if s.Product != postgres.PostgreSQL || !strings.HasPrefix(s.Version, "PostgreSQL 1") {
		t.Errorf("%q, %q", s.Product, s.Version)
	}
	if s.Pooled || s.Standby || s.ReadOnly || s.SessionLocks() != nil {
		t.Errorf("%+v, %v", s, s.SessionLocks())
	}
	if uint32(s.Backend) != conn.PgConn().PID() || s.Database != conn.Config().Database || s.User != conn.Config().User {
		t.Errorf("backend %d, database %q, user %q", s.Backend, s.Database, s.User)
	}
	var connections, each, prepared int
	err := conn.QueryRow(t.Context(), "SELECT current_setting('max_connections')::int, current_setting('max_locks_per_transaction')::int,"+
		" current_setting('max_prepared_transactions')::int").Scan(&connections, &each, &prepared)
	if err != nil || s.LockCapacity != each*(connections+prepared) {
		t.Errorf("capacity %d, want %d x (%d + %d), %v", s.LockCapacity, each, connections, prepared, err)
	}
	if s.Isolation != "serializable" || s.Timeout("statement_timeout") != 90*time.Second || s.Timeout("lock_timeout") != 0 {
		t.Errorf("isolation %q, settings %v", s.Isolation, s.Settings)
	}
	// One machine has one clock, so what is measured must be within its own bound.
	if s.ClockWithin <= 0 || s.ClockAhead.Abs() > s.ClockWithin+time.Millisecond {
		t.Errorf("the clock is ahead by %v, give or take %v", s.ClockAhead, s.ClockWithin)
	}
}

// TestReadOnlyByDefaultIsNoStandby: a primary keeps sessions apart, whatever they may write.
func TestReadOnlyByDefaultIsNoStandby(t *testing.T) {
	t.Parallel()
	conn := connect(t, testdb.PostgresURL(t))
	if _, err := conn.Exec(t.Context(), "SET default_transaction_read_only = on"); err != nil {
		t.Fatal(err)
	}
	if s := look(t, conn); !s.ReadOnly || s.Standby || s.SessionLocks() != nil {
		t.Errorf("%+v, %v", s, s.SessionLocks())
	}
}

// TestAPoolerIsSeen, and with it why session locks are refused: two clients get the same one.
func TestAPoolerIsSeen(t *testing.T) {
	t.Parallel()
	direct := testdb.PostgresURL(t)
	pooled := testdb.Pooled(t, direct)
	if both := bothGetIt(t, direct, 7); both {
		t.Error("without a pooler two sessions got the same lock")
	}
	if both := bothGetIt(t, pooled, 8); !both {
		t.Error("behind the pooler two clients were kept apart: there would be nothing to refuse")
	}
	s := look(t, connect(t, pooled))
	wantRefusal(t, s.SessionLocks(), "pooler", "NewLeaseLocker")
	if !s.Pooled || s.Standby {
		t.Errorf("%+v", s)
	}
}

func bothGetIt(t *testing.T, dsn string, key int) bool {
	t.Helper()
	both := true
	for range 2 {
		var got bool
		row := connect(t, dsn).QueryRow(t.Context(), "SELECT pg_try_advisory_lock($1)", pgx.QueryExecModeSimpleProtocol, key)
		if err := row.Scan(&got); err != nil {
			t.Fatal(err)
		}
		both = both && got
	}
	return both
}

// TestAStandbyIsSeen, and with it why session locks are refused: it grants what the primary has
// granted.
func TestAStandbyIsSeen(t *testing.T) {
	t.Parallel()
	primary := testdb.Own(t, devdb.Postgres)
	if primary == nil {
		return
	}
	standby := testdb.Standby(t, primary)
	there, here := connect(t, primary.AdminDSN()), connect(t, standby.AdminDSN())
	for _, conn := range []*pgx.Conn{there, here} {
		var got bool
		if err := conn.QueryRow(t.Context(), "SELECT pg_try_advisory_lock(7)").Scan(&got); err != nil || !got {
			t.Fatalf("%v, %v: the two servers would exclude each other", got, err)
		}
	}
	if s := look(t, there); s.Standby || s.SessionLocks() != nil {
		t.Errorf("the primary: %+v, %v", s, s.SessionLocks())
	}
	s := look(t, here)
	if !s.Standby || !s.ReadOnly {
		t.Errorf("the standby: %+v", s)
	}
	wantRefusal(t, s.SessionLocks(), "standby", "primary")
}

func wantRefusal(t *testing.T, err error, texts ...string) {
	t.Helper()
	if !errors.Is(err, dblock.ErrUnsupported) {
		t.Errorf("%v, want ErrUnsupported", err)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q does not say %q", err, text)
		}
	}
}
