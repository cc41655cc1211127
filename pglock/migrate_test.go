package pglock_test

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/answers"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/pglock"
)

func TestMigrationLocker(t *testing.T) {
	t.Parallel()
	answers.Migrations{Kind: devdb.Postgres, Locker: func(name string, timeout time.Duration) (answers.SessionLocker, error) {
		return pglock.NewMigrationLocker(pglock.MigrationOptions{Name: name, Timeout: timeout})
	}}.Run(t)
}

// TestMigrationLockerRefusesPoolers: it takes no lock there, and leaves none behind.
func TestMigrationLockerRefusesPoolers(t *testing.T) {
	t.Parallel()
	dsn := testdb.PostgresURL(t)
	direct, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = direct.Close() }()
	pooled, err := sql.Open("pgx", testdb.Pooled(t, dsn))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pooled.Close() }()
	l, err := pglock.NewMigrationLocker(pglock.MigrationOptions{Name: "shop", Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for _, db := range []*sql.DB{pooled, direct} {
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		err = l.SessionLock(t.Context(), conn)
		if db == pooled && !errors.Is(err, dblock.ErrUnsupported) || db == direct && err != nil {
			t.Errorf("behind a pooler: %t: %v", db == pooled, err)
		}
	}
	var held int
	const query = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
	if err := direct.QueryRowContext(t.Context(), query).Scan(&held); err != nil || held != 1 {
		t.Errorf("%d locks are held, want that of the direct connection: %v", held, err)
	}
}
