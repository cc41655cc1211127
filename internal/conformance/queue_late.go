package conformance

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/dblock-go/dblock/queue"
)

// A job whose transaction took its time stands, once it is there, before others that were claimed long ago. While there are always
// more of those than are asked for, it is found all the same.
func findsWhatWasCommittedLate(t *testing.T, d *desk) {
	q := d.open(t, queue.Options{})
	begun, late := make(chan int, 1<<20), make(chan struct{})
	var found atomic.Bool
	handle(t, q, "backlog", func(ctx context.Context, job queue.Job[int]) error {
		begun <- job.Args
		if found.Load() {
			return nil
		}
		_, err := q.Enqueue(ctx, queue.Task{Kind: "backlog", Args: job.Args + 1})
		return err
	})
	handle(t, q, "late", func(context.Context, queue.Job[int]) error {
		found.Store(true)
		close(late)
		return nil
	})
	tx, err := d.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.e.EnqueueTx(t.Context(), q, tx, queue.Task{Kind: "late", Args: 0}); err != nil {
		t.Fatal(err)
	}
	backlog := make([]queue.Task, 100)
	for i := range backlog {
		backlog[i] = queue.Task{Kind: "backlog", Args: 0}
	}
	if _, err := q.EnqueueMany(soon(t), backlog); err != nil {
		t.Fatal(err)
	}
	work(t, q, queue.WorkerOptions{Concurrency: 2, Batch: 2, Ahead: -1, Exchanges: 1})
	for wait(t, begun, "a job of the backlog") < 2 {
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	wait(t, late, "the job that was committed late")
	d.empty(t)
}
