package pgqueue_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/pgqueue"
)

// TestCopiesInACallersTransaction: many jobs are there if and when a pgx.Tx commits, in their
// order.
func TestCopiesInACallersTransaction(t *testing.T) {
	t.Parallel()
	pool := testdb.MigratedPostgres(t)
	ctx := t.Context()
	q, err := pgqueue.New(ctx, pool, queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = q.Close(ctx) }()
	tasks := make([]queue.Task, 1500)
	for i := range tasks {
		tasks[i] = queue.Task{Kind: "note", Args: i}
		if i >= 1200 {
			tasks[i].Delay = time.Hour
		}
	}
	for _, commit := range []bool{false, true} {
		tx, err := pool.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		made, err := pgqueue.EnqueueTx(ctx, q, tx, tasks...)
		if err != nil || len(made) != len(tasks) {
			t.Fatal(len(made), err)
		}
		if commit {
			err = tx.Commit(ctx)
		} else {
			err = tx.Rollback(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
		rows, err := pool.Query(ctx, `SELECT convert_from(j.payload, 'UTF8')::int FROM dblock_queue_ready r JOIN dblock_queue_job j USING (job_id)
			ORDER BY r.queue, r.priority, r.ready_at, r.job_id`)
		if err != nil {
			t.Fatal(err)
		}
		ready, err := pgx.CollectRows(rows, pgx.RowTo[int])
		if err != nil {
			t.Fatal(err)
		}
		var later int
		if err := pool.QueryRow(ctx, "SELECT count(*) FROM dblock_queue_scheduled WHERE run_at > clock_timestamp() + interval '50 minutes'").Scan(&later); err != nil {
			t.Fatal(err)
		}
		if want := map[bool][2]int{true: {1200, 300}}[commit]; want != [2]int{len(ready), later} {
			t.Errorf("commit %v: %d are ready, and %d are for later", commit, len(ready), later)
		}
		for i, n := range ready {
			if n != i {
				t.Errorf("job %d stands in place %d", n, i)
				break
			}
		}
	}
}
