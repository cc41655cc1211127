package pgqueue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/pgqueue"
)

// TestDefersAJobThatChangesMeanwhile: an attempt fails while another transaction has updated the
// job's row. That transaction commits once the reschedule waits for the row. The job is tried
// again.
func TestDefersAJobThatChangesMeanwhile(t *testing.T) {
	t.Parallel()
	pool := testdb.MigratedPostgres(t)
	q, err := pgqueue.New(t.Context(), pool, queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = q.Close(context.Background()) }()
	ctx, end := context.WithTimeout(t.Context(), time.Minute)
	defer end()
	attempts := 0
	committed := make(chan error, 1)
	err = queue.Handle(q, "k", func(_ context.Context, job queue.Job[string]) error {
		if attempts++; attempts > 1 {
			end()
			return nil
		}
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "UPDATE dblock_queue_job SET priority = priority WHERE job_id = $1", job.Info.ID.String())
		if err != nil {
			return err
		}
		go func() {
			const waits = "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database())"
			for is := false; !is && err == nil; {
				err = pool.QueryRow(ctx, waits).Scan(&is)
			}
			committed <- errors.Join(err, tx.Commit(ctx))
		}()
		return errors.New("the first attempt fails")
	}, queue.Backoff(func(int, error) time.Duration { return time.Millisecond }))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.EnqueueMany(ctx, []queue.Task{{Kind: "k", Args: "x"}}); err != nil {
		t.Fatal(err)
	}
	if err := q.Work(ctx, queue.WorkerOptions{}); err != nil {
		t.Error(err)
	}
	if err := <-committed; err != nil {
		t.Error(err)
	}
	if attempts != 2 {
		t.Errorf("%d attempts, want 2: the job is in no table that a worker reads", attempts)
	}
}
