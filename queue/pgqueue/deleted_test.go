package pgqueue_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/pgqueue"
)

// tooMany deleted rows are so many that a statement which passes over all of them takes longer than
// the Options.Timeout of hasty. Many are passed over in time.
const tooMany, many = 120_000, 50_000

// behindDeleted is a database where an old snapshot keeps the server from cleaning up rows that
// were deleted: those that insert makes, a statement with the number of rows as its argument.
func behindDeleted(t *testing.T, deleted int, table, insert string) (host *pgxpool.Pool, execute func(string, ...any)) {
	t.Helper()
	host = testdb.MigratedPostgres(t)
	execute = func(statement string, args ...any) {
		t.Helper()
		if _, err := host.Exec(t.Context(), statement, args...); err != nil {
			t.Fatalf("%v in %s", err, statement)
		}
	}
	execute(insert, deleted)
	old, err := host.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = old.Rollback(context.Background()) })
	if _, err := old.Exec(t.Context(), "SELECT 1 FROM "+table+" LIMIT 1"); err != nil {
		t.Fatal(err)
	}
	execute("DELETE FROM " + table)
	return host, execute
}

// hasty makes a Queue whose statements are cut off soon.
func hasty(t *testing.T, host *pgxpool.Pool, o queue.Options) *queue.Queue {
	t.Helper()
	o.Timeout = 100 * time.Millisecond
	q, err := pgqueue.New(t.Context(), host, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close(context.Background()) })
	return q
}

// vanishes calls do until the rows of a table are gone: a few calls are enough, as each has more
// time.
func vanishes(t *testing.T, host *pgxpool.Pool, rows string, do func() (int, error)) {
	t.Helper()
	const calls = 12
	left := -1
	for range calls {
		n, err := do()
		t.Logf("%d: %v", n, err)
		if err := host.QueryRow(t.Context(), "SELECT count(*) FROM "+rows).Scan(&left); err != nil {
			t.Fatal(err)
		}
		if left == 0 {
			return
		}
	}
	t.Errorf("%d rows of %s are left", left, rows)
}

// TestPromotesBehindDeletedRows: a job whose time has just come is promoted, and one behind the
// deleted rows by a later call.
func TestPromotesBehindDeletedRows(t *testing.T) {
	t.Parallel()
	host, execute := behindDeleted(t, tooMany, "dblock_queue_scheduled", "INSERT INTO dblock_queue_scheduled (run_at, job_id, queue, priority) "+
		"SELECT now() - interval '1 hour', gen_random_uuid(), 'default', 0 FROM generate_series(1, $1)")
	execute("INSERT INTO dblock_queue_scheduled (run_at, job_id, queue, priority) VALUES (now() - interval '30 minutes', gen_random_uuid(), 'default', 0)")
	q := hasty(t, host, queue.Options{})
	for {
		_, err := q.Enqueue(t.Context(), queue.Task{Kind: "note", Args: 1, Delay: time.Microsecond})
		if err == nil {
			break
		}
		t.Log(err) // a busy machine may take longer than the Timeout
	}
	vanishes(t, host, "dblock_queue_scheduled", func() (int, error) { return q.Promote(t.Context()) })
}

// TestPrunesBehindDeletedRows: old history behind the deleted rows is deleted.
func TestPrunesBehindDeletedRows(t *testing.T) {
	t.Parallel()
	const insert = "INSERT INTO dblock_queue_history (day, job_id, queue, kind, priority, attempt, outcome, enqueued_at) " +
		"SELECT $2::text::date, gen_random_uuid(), 'default', 'note', 0, 1, 1, now() FROM generate_series(1, $1)"
	host, execute := behindDeleted(t, many, "dblock_queue_history", strings.Replace(insert, "$2", "'2020-01-01'", 1))
	execute(insert, 2500, "2020-01-02")
	q := hasty(t, host, queue.Options{History: 1})
	vanishes(t, host, "dblock_queue_history", func() (int, error) { return q.PruneHistory(t.Context()) })
}

// TestPurgesBehindDeletedRows: dead jobs behind the deleted rows are dropped.
func TestPurgesBehindDeletedRows(t *testing.T) {
	t.Parallel()
	const insert = "INSERT INTO dblock_queue_dead (job_id, queue, kind, priority, attempt, max_attempts, enqueued_at, died_at, last_error, payload) " +
		"SELECT gen_random_uuid(), 'default', 'note', 0, 1, 1, now(), $2::text::timestamptz, 'bad day', '' FROM generate_series(1, $1)"
	host, execute := behindDeleted(t, many, "dblock_queue_dead", strings.Replace(insert, "$2", "'2020-01-01'", 1))
	execute(insert, 2500, "2020-01-02")
	q := hasty(t, host, queue.Options{})
	vanishes(t, host, "dblock_queue_dead", func() (int, error) { return q.Purge(t.Context(), "", 0) })
}

// TestRescuesBehindDeletedRows: claims of a process that is gone are taken over behind the rows of
// claims that were closed.
func TestRescuesBehindDeletedRows(t *testing.T) {
	t.Parallel()
	const insert = "INSERT INTO dblock_queue_claim (claim_id, member_id, queue, job_ids) " +
		"SELECT gen_random_uuid(), $2::text::uuid, 'default', '{}' FROM generate_series(1, $1)"
	const gone = "00000000-0000-7000-8000-000000000001"
	host, execute := behindDeleted(t, many, "dblock_queue_claim", strings.Replace(insert, "$2", "'"+gone+"'", 1))
	execute(insert, 10, gone)
	q := hasty(t, host, queue.Options{})
	vanishes(t, host, "dblock_queue_claim", func() (int, error) {
		again, dead, err := q.Rescue(t.Context())
		return again + dead, err
	})
}

// TestClaimsBehindDeletedRows: ready jobs behind the deleted rows begin, after few claims that
// timed out.
func TestClaimsBehindDeletedRows(t *testing.T) {
	t.Parallel()
	const jobs, most = 10, 12 // each claim that timed out has the next one take twice as long
	host, _ := behindDeleted(t, tooMany, "dblock_queue_ready", "INSERT INTO dblock_queue_ready (queue, priority, ready_at, job_id) "+
		"SELECT 'default', 0, now() - interval '1 hour', gen_random_uuid() FROM generate_series(1, $1)")
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
	q := hasty(t, host, queue.Options{Observer: queue.Observer{
		Trouble: func(doing string, err error) {
			t.Logf("%s: %v", doing, err)
			if strings.HasPrefix(doing, "exchanging jobs") {
				late.Add(1)
			}
		},
	}})
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
