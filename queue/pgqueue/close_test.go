package pgqueue_test

import (
	"context"
	"errors"
	"testing"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/pgqueue"
)

// TestCloseDoesNotWaitForEnds: the context of Close has ended, and handlers still run. Their
// contexts have ended when Close returns, as others may have the jobs then. Those that return have
// their jobs handed back, which is no attempt. The ends of the others are not recorded. Work says
// so, and the Observer learns how many are lost.
func TestCloseDoesNotWaitForEnds(t *testing.T) {
	t.Parallel()
	const jobs = 5
	back := 0
	for tries := 0; back != jobs && tries < 5; tries++ { // a slow server takes longer than Close waits
		back = closeAmidJobs(t, jobs)
	}
	if back != jobs {
		t.Errorf("%d jobs were handed back, want %d", back, jobs)
	}
}

// closeAmidJobs closes a Queue while jobs of two kinds run, each kind as many times as jobs says.
// The handlers of one ignore the end of their contexts, and those of the other return. It returns
// how many jobs of the other kind were handed back.
func closeAmidJobs(t *testing.T, jobs int) (back int) {
	t.Helper()
	db := testdb.MigratedPostgres(t)
	lost, trouble := make(chan int, jobs), make(chan error, 100)
	o := queue.Options{Observer: queue.Observer{
		Lost: func(_ string, n int) { lost <- n },
		Trouble: func(_ string, err error) {
			if errors.Is(err, queue.ErrNotRecorded) {
				trouble <- err
			}
		},
	}}
	q, err := pgqueue.New(t.Context(), db, o)
	if err != nil {
		t.Fatal(err)
	}
	running, end := make(chan context.Context, jobs), make(chan struct{})
	err = queue.Handle(q, "note", func(ctx context.Context, _ queue.Job[int]) error {
		running <- ctx
		<-end
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	err = queue.Handle(q, "obeys", func(ctx context.Context, _ queue.Job[int]) error {
		running <- ctx
		<-ctx.Done()
		return ctx.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	for range jobs {
		for _, kind := range []string{"note", "obeys"} {
			if _, err := q.Enqueue(t.Context(), queue.Task{Kind: kind, Args: 1, MaxAttempts: 1}); err != nil {
				t.Fatal(err)
			}
		}
	}
	worked := make(chan error, 1)
	go func() { worked <- q.Work(context.Background(), queue.WorkerOptions{Concurrency: 2 * jobs, Rescue: -1}) }()
	var contexts []context.Context
	for range 2 * jobs {
		contexts = append(contexts, <-running)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := q.Close(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Close: %v, want the error of its context", err)
	}
	for _, ctx := range contexts {
		if !errors.Is(context.Cause(ctx), queue.ErrStopped) {
			t.Errorf("the context of a handler: %v, want ErrStopped", context.Cause(ctx))
		}
	}
	close(end)
	if err := <-worked; !errors.Is(err, queue.ErrNotRecorded) {
		t.Errorf("Work: %v, want ErrNotRecorded", err)
	}
	<-trouble
	if n := <-lost; n != jobs {
		t.Errorf("%d ends are lost, want %d", n, jobs)
	}
	var left int
	err = db.QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (WHERE kind = 'obeys' AND attempt = 0 AND
		EXISTS (SELECT 1 FROM dblock_queue_ready r WHERE r.job_id = j.job_id)) FROM dblock_queue_job j`).Scan(&left, &back)
	if err != nil || left != 2*jobs {
		t.Errorf("%d jobs stand, %v; want %d", left, err, 2*jobs)
	}
	return back
}
