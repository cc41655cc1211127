package queue

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/queue"
)

// A worker that stops hands back jobs that have not begun, and jobs that it had to interrupt.
// Neither costs an attempt.
func handsBackWhatWasNotBegun(t *testing.T, d *env) {
	const jobs, handlers = 20, 2
	q, h := d.open(t, queue.Options{}), newHolder()
	var stopped atomic.Int32
	handle(t, q, "note", func(ctx context.Context, job queue.Job[int]) error {
		err := h.obey(ctx, job)
		if errors.Is(err, queue.ErrStopped) {
			stopped.Add(1)
		}
		return err
	})
	enqueueMany(t, q, repeat(jobs, queue.Task{Kind: "note"}))
	stop := work(t, q, queue.WorkerOptions{Concurrency: handlers, Ahead: 10, Grace: 100 * time.Millisecond})
	h.has(t, handlers)
	h.end <- nil
	h.has(t, 1)
	assert.NoError(t, stop())
	assert.EqualValues(t, handlers, stopped.Load(), "jobs that were interrupted")
	for table, want := range map[string]int{
		"job": jobs - 1, "ready": jobs - 1, "claim": 0, "job WHERE attempt > 0": 0, "scheduled": 0,
	} {
		d.rows(t, table, want)
	}
	var did once
	next := d.open(t, queue.Options{})
	handle(t, next, "note", did.handle)
	work(t, next, queue.WorkerOptions{})
	d.empty(t)
	assert.Equal(t, jobs-1, did.done())
}

// Close returns soon after its context has ended, also while a worker runs. The process leaves in
// the background. Without a bound Close would wait for the TTL, an hour.
func aQueueClosesOnAFrozenServer(t *testing.T, d *env) {
	d, server := d.onAServerOfItsOwn(t)
	if server == nil {
		return // it was given, and may serve others
	}
	for _, working := range []bool{true, false} {
		q, done := d.open(t, queue.Options{TTL: time.Hour}), make(chan int, 1)
		handle(t, q, "note", record(done))
		stop := work(t, q, queue.WorkerOptions{})
		enqueue(t, q, queue.Task{Kind: "note", Args: 1})
		wait(t, done, "the job")
		d.empty(t)
		if !working {
			require.NoError(t, stop())
		}
		require.NoError(t, server.Freeze())
		closed := make(chan error, 1)
		go func() { closed <- closeIn(q, suite.FrozenDeadline) }()
		select {
		case err := <-closed:
			assert.Error(t, err)
		case <-time.After(30 * time.Second):
			assert.Fail(t, "it is not closed", "with a worker: %t", working)
		}
		require.NoError(t, server.Thaw())
		_ = stop()
		d.until(t, suite.Members, 0)
	}
}

func leavesThoseWhoIgnoreTheirEnd(t *testing.T, d *env) {
	q, h := d.open(t, queue.Options{}), newHolder()
	handle(t, q, "note", h.handle)
	stop := work(t, q, queue.WorkerOptions{Grace: -1})
	enqueue(t, q, queue.Task{Kind: "note", Args: 1})
	h.has(t, 1)
	assert.ErrorIs(t, stop(), queue.ErrStillRunning)
	assert.NoError(t, closeIn(q, time.Minute))
	rescue(t, d.open(t, queue.Options{}), 1, 0)
	h.end <- nil
}
