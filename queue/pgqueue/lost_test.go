package pgqueue_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/pgqueue"
)

// TestALostAttemptCounts: heartbeats of a process are not confirmed for longer than the TTL, and no
// other process rescues its job. The job's one attempt had begun, so it is dead.
func TestALostAttemptCounts(t *testing.T) {
	t.Parallel()
	host := testdb.MigratedPostgres(t)
	q, err := pgqueue.New(t.Context(), host, queue.Options{TTL: 6 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	var begun atomic.Int32
	lost, running := make(chan error, 100), make(chan struct{}, 100)
	err = queue.Handle(q, "note", func(ctx context.Context, _ queue.Job[int]) error {
		begun.Add(1)
		running <- struct{}{}
		<-ctx.Done()
		lost <- context.Cause(ctx)
		return context.Cause(ctx)
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Enqueue(t.Context(), queue.Task{Kind: "note", Args: 1, MaxAttempts: 1}); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	worked := make(chan error, 1)
	go func() { worked <- q.Work(ctx, queue.WorkerOptions{Rescue: -1}) }()
	<-running
	tx, err := host.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT 1 FROM dblock_member FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	if cause := <-lost; !errors.Is(cause, dblock.ErrLost) {
		t.Fatalf("the handler's context ended for %v, want ErrLost", cause)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for dead := 0; dead == 0; time.Sleep(10 * time.Millisecond) {
		if n := begun.Load(); n != 1 {
			t.Fatalf("the job began %d times, want once", n)
		}
		if err := host.QueryRow(t.Context(), "SELECT count(*) FROM dblock_queue_dead").Scan(&dead); err != nil {
			t.Fatal(err)
		}
	}
	end()
	if err := errors.Join(<-worked, q.Close(t.Context())); err != nil {
		t.Error(err)
	}
}
