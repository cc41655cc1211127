package pgqueue_test

import (
	"context"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/pgqueue"
)

// TestManySlowEnds: all handlers return together, and to record their ends takes longer than
// Options.Timeout, as a trigger makes each of them slow. All are recorded, and other jobs are done.
func TestManySlowEnds(t *testing.T) {
	t.Parallel()
	const jobs = 60
	db, ctx := testdb.MigratedPostgres(t), t.Context()
	for _, text := range []string{
		"CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.025); RETURN old; END'",
		"CREATE TRIGGER slow AFTER DELETE ON dblock_queue_job FOR EACH ROW EXECUTE FUNCTION slow()",
	} {
		if _, err := db.Exec(ctx, text); err != nil {
			t.Fatal(err)
		}
	}
	q, err := pgqueue.New(ctx, db, queue.Options{Timeout: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = q.Close(context.Background()) }()
	began, gate, done := make(chan struct{}, jobs), make(chan struct{}), make(chan struct{}, 1)
	err = queue.Handle(q, "note", func(_ context.Context, job queue.Job[int]) error {
		if job.Args == jobs {
			done <- struct{}{}
			return nil
		}
		began <- struct{}{}
		<-gate
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for n := range jobs {
		if _, err := q.Enqueue(ctx, queue.Task{Kind: "note", Args: n}); err != nil {
			t.Fatal(err)
		}
	}
	working, stop := context.WithCancel(ctx)
	worked := make(chan error, 1)
	go func() { worked <- q.Work(working, queue.WorkerOptions{Concurrency: jobs}) }()
	defer func() { stop(); <-worked }()
	for range jobs {
		<-began
	}
	close(gate)
	if _, err := q.Enqueue(ctx, queue.Task{Kind: "note", Args: jobs}); err != nil {
		t.Fatal(err)
	}
	late := time.After(time.Minute)
	select {
	case <-done:
	case <-late:
		t.Error("no other job is done")
	}
	for left := 1; left > 0; time.Sleep(10 * time.Millisecond) {
		if err := db.QueryRow(ctx, "SELECT count(*) FROM dblock_queue_job").Scan(&left); err != nil {
			t.Fatal(err)
		}
		select {
		case <-late:
			t.Fatalf("the ends of %d jobs are not recorded", left)
		default:
		}
	}
}
