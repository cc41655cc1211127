package queue

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/queue"
)

// A handler that ends its process has it crash: its job, which had no other attempt, is buried, and what was claimed with it is done by others.
func anExitIsACrash(t *testing.T, d *env) {
	const jobs = 10
	q := d.open(t, queue.Options{})
	tasks := make([]queue.Task, jobs)
	for i := range tasks {
		tasks[i] = queue.Task{Kind: "note", Args: i}
	}
	tasks[3].MaxAttempts = 1
	made, err := q.EnqueueMany(t.Context(), tasks)
	if err != nil {
		t.Fatal(err)
	}
	victim := d.startWorker(t, workerExit+"=1")
	for range jobs {
		victim.Says(t, "began")
	}
	_ = victim.In.Close()
	if err := victim.Wait(); err == nil || victim.ProcessState.ExitCode() != 3 {
		t.Errorf("the process ended with %v", err)
	}
	var did once
	handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
		if job.Attempt != 2 {
			t.Errorf("job %d has attempt %d", job.Args, job.Attempt)
		}
		did.did(job.ID)
		return nil
	})
	work(t, q, queue.WorkerOptions{Rescue: 100 * time.Millisecond})
	d.empty(t)
	if err := did.check(append(made[:3:3], made[4:]...), true); err != nil {
		t.Error(err)
	}
	if s := d.text(t, "SELECT last_error FROM dblock_queue_dead"); !strings.Contains(s, "worker is gone") {
		t.Errorf("%q", s)
	}
}

// A handler that ignores the end of its time keeps its job, which nobody else gets; others are done meanwhile, and what it says in the end
// counts.
func aHandlerMayIgnoreItsTime(t *testing.T, d *env) {
	q, other := d.open(t, queue.Options{TTL: time.Second}), d.open(t, queue.Options{})
	late, end := make(chan error, 1), make(chan error)
	var did once
	handle(t, q, "note", func(ctx context.Context, job queue.Job[int]) error {
		did.did(job.ID)
		if job.Args > 0 {
			return nil
		}
		<-ctx.Done()
		late <- context.Cause(ctx)
		return <-end
	}, queue.Timeout(20*time.Millisecond))
	work(t, q, queue.WorkerOptions{Concurrency: 2})
	made := enqueue(t, q, queue.Task{Kind: "note", Args: 0})
	if cause := wait(t, late, "the end of its time"); !errors.Is(cause, queue.ErrTimeout) {
		t.Errorf("its context ended with %v", cause)
	}
	for n := range 20 {
		made = append(made, enqueue(t, q, queue.Task{Kind: "note", Args: n + 1})...)
	}
	d.until(t, "SELECT count(*) FROM dblock_queue_job", 1)
	if ready, dead, err := other.Rescue(t.Context()); err != nil || ready+dead != 0 {
		t.Errorf("rescued %d and %d, %v", ready, dead, err)
	}
	end <- nil
	d.empty(t)
	if err := did.check(made, true); err != nil {
		t.Error(err)
	}
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_dead"); n != 0 {
		t.Errorf("%d are dead", n)
	}
}
