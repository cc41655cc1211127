package pgqueue_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/pgqueue"
)

// TestForgottenEndsBehindAPooler: a server that crashes forgets the end of a job, and the pooler
// keeps the connections of the worker. The job's claim has another job, which ends later. Both jobs
// are done in the end.
func TestForgottenEndsBehindAPooler(t *testing.T) {
	t.Parallel()
	host := testdb.MigratedPostgres(t)
	pooled, err := pgxpool.New(t.Context(), testdb.Pooled(t, host.Config().ConnString()))
	if err != nil {
		t.Fatal(err)
	}
	defer pooled.Close()
	q, err := pgqueue.New(t.Context(), pooled, queue.Options{TTL: 6 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	const quick, slow = 1, 2
	var ran [3]atomic.Int32
	goOn := make(chan struct{})
	err = queue.Handle(q, "note", func(_ context.Context, job queue.Job[int]) error {
		ran[job.Args].Add(1)
		if job.Args == slow {
			<-goOn
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.EnqueueMany(t.Context(), []queue.Task{{Kind: "note", Args: quick}, {Kind: "note", Args: slow}}); err != nil {
		t.Fatal(err)
	}
	if _, err := host.Exec(t.Context(), "CREATE TABLE as_it_was AS TABLE dblock_queue_job"); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	worked := make(chan error, 1)
	go func() { worked <- q.Work(ctx, queue.WorkerOptions{Concurrency: 2}) }()
	jobs := func() (n int) {
		t.Helper()
		if err := host.QueryRow(t.Context(), "SELECT count(*) FROM dblock_queue_job").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for jobs() > 1 || ran[slow].Load() == 0 {
		time.Sleep(5 * time.Millisecond)
	}
	if _, err := host.Exec(t.Context(), "INSERT INTO dblock_queue_job TABLE as_it_was ON CONFLICT DO NOTHING"); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	for began := time.Now(); ran[quick].Load() < 2 || jobs() > 0; {
		if time.Since(began) > time.Minute {
			t.Fatal("the job whose end was forgotten did not run again within a minute")
		}
		time.Sleep(5 * time.Millisecond)
	}
	stop()
	if err := errors.Join(<-worked, q.Close(t.Context())); err != nil {
		t.Error(err)
	}
}
