package pgqueue_test

import (
	"context"
	"strings"
	"sync/atomic"
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

// TestClaimsBehindDeletedRows: an old snapshot keeps the server from cleaning up many ready rows that were deleted, and a claim that passes
// over all of them takes longer than Options.Timeout. Jobs behind them begin all the same, after few claims that timed out.
func TestClaimsBehindDeletedRows(t *testing.T) {
	t.Parallel()
	const deleted, jobs, most = 300_000, 10, 3
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
	execute("INSERT INTO dblock_queue_ready (queue, priority, ready_at, job_id) "+
		"SELECT 'default', 0, now() - interval '1 hour', gen_random_uuid() FROM generate_series(1, $1)", deleted)
	old, err := host.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = old.Rollback(t.Context()) }()
	if _, err := old.Exec(t.Context(), "SELECT 1 FROM dblock_queue_ready LIMIT 1"); err != nil {
		t.Fatal(err)
	}
	execute("DELETE FROM dblock_queue_ready")
	producer, err := pgqueue.New(t.Context(), host, queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = producer.Close(t.Context()) }()
	for n := range jobs {
		if _, err := producer.Enqueue(t.Context(), queue.Task{Kind: "note", Args: n}); err != nil {
			t.Fatal(err)
		}
	}

	var late atomic.Int32
	q, err := pgqueue.New(t.Context(), host, queue.Options{Timeout: 100 * time.Millisecond, Observer: queue.Observer{
		Trouble: func(doing string, err error) {
			t.Logf("%s: %v", doing, err)
			if strings.HasPrefix(doing, "exchanging jobs") {
				late.Add(1)
			}
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = q.Close(t.Context()) }()
	done := make(chan struct{}, jobs)
	err = queue.Handle(q, "note", func(context.Context, queue.Job[int]) error {
		done <- struct{}{}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- q.Work(ctx, queue.WorkerOptions{}) }()
	for range jobs {
		<-done
	}
	if n := late.Load(); n > most {
		t.Errorf("%d claims timed out, want at most %d", n, most)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
