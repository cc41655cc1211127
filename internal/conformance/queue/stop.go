package queue

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/queue"
)

// Who stops hands back what it had not begun, and what it could not end; neither is an attempt.
func handsBackWhatWasNotBegun(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	began, end := make(chan int, 50), make(chan error)
	var stopped atomic.Int32
	handle(t, q, "note", func(ctx context.Context, job queue.Job[int]) error {
		began <- job.Args
		select {
		case err := <-end:
			return err
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), queue.ErrStopped) {
				stopped.Add(1)
			}
			return ctx.Err()
		}
	})
	tasks := make([]queue.Task, 20)
	for i := range tasks {
		tasks[i] = queue.Task{Kind: "note", Args: i}
	}
	if _, err := q.EnqueueMany(t.Context(), tasks); err != nil {
		t.Fatal(err)
	}
	stop := work(t, q, queue.WorkerOptions{Concurrency: 2, Ahead: 10, Grace: 100 * time.Millisecond})
	for range 2 {
		wait(t, began, "a job")
	}
	go func() { end <- nil }()
	for range 2 {
		if n := wait(t, began, "the next job"); n >= 0 {
			break
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if stopped.Load() != 2 {
		t.Errorf("%d were stopped", stopped.Load())
	}
	for query, want := range map[string]int64{
		"SELECT count(*) FROM dblock_queue_job": 19, "SELECT count(*) FROM dblock_queue_ready": 19,
		"SELECT count(*) FROM dblock_queue_claim": 0, "SELECT count(*) FROM dblock_queue_job WHERE attempt > 0": 0,
		"SELECT count(*) FROM dblock_queue_scheduled": 0,
	} {
		if n := d.count(t, query); n != want {
			t.Errorf("%s: %d, want %d", query, n, want)
		}
	}
	next := d.open(t, queue.Options{})
	var did once
	handle(t, next, "note", func(_ context.Context, job queue.Job[int]) error {
		did.did(job.ID)
		return nil
	})
	work(t, next, queue.WorkerOptions{})
	d.empty(t)
	if did.done() != 19 {
		t.Errorf("%d were done then", did.done())
	}
}

// aQueueClosesOnAFrozenServer: Close returns soon after its context has ended, also while a worker runs. The process leaves
// in the background.
func aQueueClosesOnAFrozenServer(t *testing.T, d *env) {
	own, server := d.onAServerOfItsOwn(t)
	if server == nil {
		return // it was given, and may serve others
	}
	for _, working := range []bool{true, false} {
		q := own.open(t, queue.Options{TTL: time.Hour})
		done := make(chan struct{}, 1)
		handle(t, q, "note", func(context.Context, queue.Job[int]) error {
			done <- struct{}{}
			return nil
		})
		stop := work(t, q, queue.WorkerOptions{})
		enqueue(t, q, queue.Task{Kind: "note", Args: 1})
		wait(t, done, "the job")
		own.empty(t)
		if !working {
			if err := stop(); err != nil {
				t.Fatal(err)
			}
		}
		if err := server.Freeze(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), suite.FrozenDeadline)
		began := time.Now()
		err := q.Close(ctx)
		took := time.Since(began)
		cancel()
		if err := server.Thaw(); err != nil {
			t.Fatal(err)
		}
		if err == nil || took > suite.FrozenWithin {
			t.Errorf("with a worker: %t: closed after %v: %v", working, took.Round(time.Millisecond), err)
		}
		_ = stop()
		own.until(t, "SELECT count(*) FROM dblock_member", 0)
	}
}

func leavesThoseWhoIgnoreTheirEnd(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	began, end := make(chan int, 1), make(chan error)
	handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
		began <- job.Attempt
		return <-end
	})
	stop := work(t, q, queue.WorkerOptions{Grace: -1})
	enqueue(t, q, queue.Task{Kind: "note", Args: 1})
	wait(t, began, "the job")
	if err := stop(); !errors.Is(err, queue.ErrStillRunning) {
		t.Errorf("work: %v", err)
	}
	if err := q.Close(suite.Soon(t)); err != nil {
		t.Error(err)
	}
	other := d.open(t, queue.Options{})
	if ready, _, err := other.Rescue(t.Context()); err != nil || ready != 1 {
		t.Errorf("%d rescued, %v", ready, err)
	}
	end <- nil
}
