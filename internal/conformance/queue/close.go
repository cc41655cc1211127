package queue

import (
	"context"
	"errors"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/queue"
)

// handlersMayEnqueueDuringClose: Close lets handlers go on for Grace, and the Queue serves them
// until then: a last attempt that enqueues does not kill its job.
func handlersMayEnqueueDuringClose(t *testing.T, d *env) {
	for _, kind := range []string{"plain", "tx"} {
		q := d.open(t, queue.Options{})
		began, end := make(chan struct{}), make(chan struct{})
		handle(t, q, "plain", func(ctx context.Context, job queue.Job[int]) error {
			close(began)
			<-end
			_, keyed := q.Enqueue(ctx, queue.Task{Kind: "follows", Unique: "plain"})
			_, err := q.Enqueue(ctx, queue.Task{Kind: "follows"})
			return errors.Join(keyed, err)
		})
		handleTx(t, d, q, "tx", func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
			close(began)
			<-end
			_, err := tx.Enqueue(ctx, queue.Task{Kind: "follows"}, queue.Task{Kind: "follows", Unique: "tx"})
			return err
		})
		worked := make(chan error, 1)
		go func() { worked <- q.Work(context.Background(), queue.WorkerOptions{}) }()
		enqueue(t, q, queue.Task{Kind: kind, Args: 1, MaxAttempts: 1})
		wait(t, began, "the job")
		closed := make(chan error, 1)
		go func() { closed <- q.Close(suite.Soon(t)) }()
		closes(t, q)
		close(end)
		if err := errors.Join(wait(t, closed, "close"), wait(t, worked, "the end of work")); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		for id, why := range d.deadJobs(t) {
			t.Errorf("%s: job %v died: %s", kind, id, why)
		}
	}
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_job WHERE kind = 'follows'"); n != 4 {
		t.Errorf("%d jobs follow, want 4", n)
	}
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_job WHERE kind <> 'follows'"); n != 0 {
		t.Errorf("%d jobs are left", n)
	}
}

// closes waits until Close was called.
func closes(t *testing.T, q *queue.Queue) {
	t.Helper()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for ctx := suite.Soon(t); !errors.Is(q.Work(ended, queue.WorkerOptions{Queue: "none"}), dblock.ErrClosed); {
		if ctx.Err() != nil {
			t.Fatal("waited in vain for close")
		}
		time.Sleep(time.Millisecond)
	}
}

// aSecondCloseWaits: while its context lives, for the first one.
func aSecondCloseWaits(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	began, end := make(chan struct{}), make(chan struct{})
	var done atomic.Bool
	handle(t, q, "note", func(context.Context, queue.Job[int]) error {
		close(began)
		<-end
		done.Store(true)
		return nil
	})
	work(t, q, queue.WorkerOptions{})
	enqueue(t, q, queue.Task{Kind: "note", Args: 1})
	wait(t, began, "the job")
	closed := make(chan error, 2)
	go func() { closed <- q.Close(suite.Soon(t)) }()
	closes(t, q)
	over, cancel := context.WithCancelCause(t.Context())
	cancel(errBadDay)
	if err := q.Close(over); !errors.Is(err, errBadDay) {
		t.Errorf("a second close whose context has ended, beside a handler: %v", err)
	}
	go func() {
		err := q.Close(suite.Soon(t))
		if !done.Load() {
			err = errors.Join(err, errors.New("it did not wait for the handler"))
		}
		closed <- err
	}()
	close(end)
	for range 2 {
		if err := wait(t, closed, "close"); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	if n := d.count(t, "SELECT count(*) FROM dblock_member"); n != 0 {
		t.Errorf("%d members", n)
	}
}

// aClosedQueueRefusesAllCalls: each method but Close says that the Queue is closed, and nothing else.
func aClosedQueueRefusesAllCalls(t *testing.T, d *env) {
	q := d.open(t, queue.Options{History: 1})
	if err := q.Close(suite.Soon(t)); err != nil {
		t.Fatal(err)
	}
	of := reflect.ValueOf(q)
	for i := range of.NumMethod() {
		name, method := of.Type().Method(i).Name, of.Method(i)
		if name == "Close" {
			continue
		}
		args := make([]reflect.Value, method.Type().NumIn())
		for k := range args {
			args[k] = reflect.Zero(method.Type().In(k))
		}
		args[0] = reflect.ValueOf(t.Context())
		call := method.Call
		if method.Type().IsVariadic() {
			call = method.CallSlice
		}
		results := call(args)
		if err, _ := results[len(results)-1].Interface().(error); !errors.Is(err, dblock.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
