package pgqueue_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/migrations"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/pgqueue"
)

// TestPromotesBehindDeletedRows: an old snapshot keeps the server from cleaning up many rows that were deleted, and a statement that passes
// over all of them takes longer than Options.Timeout. A job whose time has just come is promoted all the same, and one behind the deleted
// rows by a later call.
func TestPromotesBehindDeletedRows(t *testing.T) {
	t.Parallel()
	const deleted, calls = 300_000, 12
	host := testdb.Postgres(t)
	if _, err := migrations.Up(t.Context(), host, migrations.Options{}); err != nil {
		t.Fatal(err)
	}
	execute := func(statement string, args ...any) {
		t.Helper()
		if _, err := host.Exec(t.Context(), statement, args...); err != nil {
			t.Fatalf("%v in %s", err, statement)
		}
	}
	execute("INSERT INTO dblock_queue_scheduled (run_at, job_id, queue, priority) "+
		"SELECT now() - interval '1 hour', gen_random_uuid(), 'default', 0 FROM generate_series(1, $1)", deleted)
	old, err := host.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = old.Rollback(t.Context()) }()
	if _, err := old.Exec(t.Context(), "SELECT 1 FROM dblock_queue_scheduled LIMIT 1"); err != nil {
		t.Fatal(err)
	}
	execute("DELETE FROM dblock_queue_scheduled")
	execute("INSERT INTO dblock_queue_scheduled (run_at, job_id, queue, priority) VALUES (now() - interval '30 minutes', gen_random_uuid(), 'default', 0)")

	q, err := pgqueue.New(t.Context(), host, queue.Options{Timeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = q.Close(t.Context()) }()
	for {
		if _, err = q.Enqueue(t.Context(), queue.Task{Kind: "note", Args: 1, Delay: time.Microsecond}); err == nil {
			break
		}
		t.Log(err) // a busy machine may take longer than the Timeout
	}
	waiting := -1
	for range calls {
		promoted, err := q.Promote(t.Context())
		t.Logf("promoted %d: %v", promoted, err)
		if err := host.QueryRow(t.Context(), "SELECT count(*) FROM dblock_queue_scheduled").Scan(&waiting); err != nil {
			t.Fatal(err)
		}
		if waiting == 0 {
			return
		}
	}
	t.Errorf("%d jobs were not promoted", waiting)
}
