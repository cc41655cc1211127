package pglock_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	sessionsuite "github.com/dblock-go/dblock/internal/conformance/session"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/pglock"
)

// TestSessionRefusesAPooler: behind one that has statements of a session run on any connection,
// session locks exclude no other caller.
func TestSessionRefusesAPooler(t *testing.T) {
	t.Parallel()
	sessionRefused(t, testdb.Pooled(t, testdb.PostgresURL(t)), "pooler", "NewLeaseLocker")
}

// TestSessionRefusesAStandby: it grants what the primary has granted.
func TestSessionRefusesAStandby(t *testing.T) {
	t.Parallel()
	primary := testdb.Own(t, devdb.Postgres)
	if primary == nil {
		return
	}
	sessionRefused(t, testdb.Standby(t, primary).AdminDSN(), "standby", "primary")
}

func sessionRefused(t *testing.T, dsn string, texts ...string) {
	t.Helper()
	_, closePool, err := openSession(t.Context(), dsn, nil, sessionsuite.SessionOptions{})
	if err == nil {
		closePool()
	}
	if !errors.Is(err, dblock.ErrUnsupported) {
		t.Fatalf("%v, want ErrUnsupported", err)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q does not say %q", err, text)
		}
	}
}

// TestSessionLeavesThePoolAlone: it takes the settings of the host's pool, and none of its
// connections.
func TestSessionLeavesThePoolAlone(t *testing.T) {
	t.Parallel()
	pool := testdb.Postgres(t)
	if _, err := pglock.NewSessionLocker(t.Context(), nil, pglock.SessionOptions{}); !errors.Is(err, dblock.ErrInvalid) {
		t.Errorf("no pool: %v", err)
	}
	l, err := pglock.NewSessionLocker(t.Context(), pool, pglock.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lock, err := l.Acquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if n := pool.Stat().AcquiredConns(); n != 0 {
		t.Errorf("it has %d connections of the pool", n)
	}
	if err := errors.Join(lock.Release(t.Context()), l.Close(t.Context())); err != nil {
		t.Error(err)
	}
	hostHasAll(t, pool)
}

func hostHasAll(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for range pool.Config().MaxConns {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
	}
}

// TestSessionSurvivesAFullLockTable has another session fill the server's lock table. What is held
// stays held and can be released, and new locks are refused until some are released.
func TestSessionSurvivesAFullLockTable(t *testing.T) {
	t.Parallel()
	server := testdb.Own(t, devdb.Postgres, "-c", "max_connections=100") // a smaller table is full sooner
	if server == nil {
		return
	}
	l, closePool, err := openSession(t.Context(), server.AdminDSN(), nil, sessionsuite.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer closePool()
	pool, err := pgxpool.New(t.Context(), server.AdminDSN())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	var locks []*dblock.Lock
	for _, key := range []string{"a", "b", "c"} {
		lock, err := l.Acquire(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		locks = append(locks, lock)
	}
	hog, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ {
		if _, err := hog.Exec(t.Context(), "SELECT pg_advisory_lock(n) FROM generate_series(1, 10000000) n"); err == nil {
			t.Fatal("the server has room for ten million locks")
		}
		lock, err := l.TryAcquire(t.Context(), "d")
		if errors.Is(err, dblock.ErrOverloaded) {
			break
		}
		if err != nil || n == 20 {
			t.Fatalf("without room: %v", err)
		}
		if err := lock.Release(t.Context()); err != nil { // a session of the server itself has ended since
			t.Fatal(err)
		}
	}
	for _, lock := range locks {
		if err := lock.Release(t.Context()); err != nil {
			t.Errorf("without room, a release: %v", err)
		}
	}
	if _, err := hog.Exec(t.Context(), "SELECT pg_advisory_unlock_all()"); err != nil {
		t.Fatal(err)
	}
	hog.Release()
	for _, key := range []string{"a", "b", "c", "d"} {
		lock, err := l.TryAcquire(t.Context(), key)
		if err != nil {
			t.Fatalf("with room again: %v", err)
		}
		if err := lock.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
