package pglock_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/migrations"
	"github.com/dblock-go/dblock/pglock"
)

// TestSessionLocksOfAPreparedTransaction: such a lock has no session. It is listed with the name of
// the transaction, and as waiting for nothing.
func TestSessionLocksOfAPreparedTransaction(t *testing.T) {
	t.Parallel()
	server := testdb.Own(t, devdb.Postgres, "-c", "max_prepared_transactions=4")
	if server == nil {
		return
	}
	pool, err := pgxpool.New(t.Context(), server.AdminDSN())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	db := stdlib.OpenDBFromPool(pool)
	defer func() { _ = db.Close() }()
	if _, err := migrations.Up(t.Context(), db, migrations.Options{}); err != nil {
		t.Fatal(err)
	}
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for _, statement := range []string{"BEGIN", "SELECT pg_advisory_xact_lock(77)", "PREPARE TRANSACTION 'order 7'"} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	defer func() { _, _ = conn.Exec(t.Context(), "ROLLBACK PREPARED 'order 7'") }()
	locks, err := pglock.SessionLocks(t.Context(), pool, "")
	if err != nil {
		t.Fatal(err)
	}
	if len(locks) != 1 || locks[0].ID != "77" || locks[0].Session != "" || locks[0].Label != "prepared transaction order 7" || locks[0].Waits {
		t.Errorf("%+v", locks)
	}
}
