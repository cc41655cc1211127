package queue

import (
	"context"
	"errors"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/queue"
)

// Close lets handlers go on for Grace, and the Queue serves them until then: a last attempt that enqueues does not kill its job.
func handlersMayEnqueueDuringClose(t *testing.T, d *env) {
	for _, kind := range []string{"plain", "tx"} {
		q, held := d.open(t, queue.Options{}), newHolder()
		handle(t, q, "plain", func(ctx context.Context, job queue.Job[int]) error {
			_ = held.handle(ctx, job)
			_, keyed := q.Enqueue(ctx, queue.Task{Kind: "follows", Unique: "plain"})
			_, err := q.Enqueue(ctx, queue.Task{Kind: "follows"})
			return errors.Join(keyed, err)
		})
		handleTx(t, d, q, "tx", func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
			_ = held.handle(ctx, job)
			_, err := tx.Enqueue(ctx, queue.Task{Kind: "follows"}, queue.Task{Kind: "follows", Unique: "tx"})
			return err
		})
		worked := make(chan error, 1)
		go func() { worked <- q.Work(context.Background(), queue.WorkerOptions{}) }()
		enqueue(t, q, queue.Task{Kind: kind, Args: 1, MaxAttempts: 1})
		held.has(t, 1)
		closed := closes(t, q)
		close(held.end)
		assert.NoError(t, errors.Join(wait(t, closed, "close"), wait(t, worked, "end of work")), kind)
		assert.Empty(t, d.deadJobs(t), kind)
	}
	d.rows(t, "job WHERE kind = 'follows'", 4)
	d.rows(t, "job WHERE kind <> 'follows'", 0)
}

// closes calls Close and waits until it has begun. The channel has its result.
func closes(t *testing.T, q *queue.Queue) <-chan error {
	t.Helper()
	closed := make(chan error, 1)
	go func() { closed <- closeIn(q, time.Minute) }()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	suite.Until(t, "Close has begun", func() bool {
		return errors.Is(q.Work(ended, queue.WorkerOptions{Queue: "none"}), dblock.ErrClosed)
	})
	return closed
}

func aSecondCloseWaits(t *testing.T, d *env) {
	q, held := d.open(t, queue.Options{}), newHolder()
	var done atomic.Bool
	handle(t, q, "note", func(ctx context.Context, job queue.Job[int]) error {
		err := held.handle(ctx, job)
		done.Store(true)
		return err
	})
	work(t, q, queue.WorkerOptions{})
	enqueue(t, q, queue.Task{Kind: "note", Args: 1})
	held.has(t, 1)
	first := closes(t, q)
	over, cancel := context.WithCancelCause(t.Context())
	cancel(errBadDay)
	assert.ErrorIs(t, q.Close(over), errBadDay, "a second close whose context has ended, beside a handler")
	second := make(chan error, 1)
	go func() {
		err := closeIn(q, time.Minute)
		assert.True(t, done.Load(), "it did not wait for the handler")
		second <- err
	}()
	close(held.end)
	assert.NoError(t, wait(t, first, "close"))
	assert.NoError(t, wait(t, second, "second close"))
	assert.Zero(t, d.count(t, suite.Members))
}

// Each method but Close returns ErrClosed and does nothing else.
func aClosedQueueRefusesAllCalls(t *testing.T, d *env) {
	q := d.open(t, queue.Options{History: 1})
	require.NoError(t, q.Close(suite.Soon(t)))
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
		err, _ := results[len(results)-1].Interface().(error)
		assert.ErrorIs(t, err, dblock.ErrClosed, name)
	}
}

// The connection of each call that Close makes is cut. The process leaves by another connection, at once.
func aCloseCutAnywhere(t *testing.T, d *env) {
	for _, mode := range []faultconn.Mode{faultconn.CutBefore, faultconn.CutAfter} {
		for k, struck := 1, true; struck; k++ {
			dialer := new(faultconn.Dialer)
			q := d.openOn(t, dialer, queue.Options{TTL: time.Hour})
			handle(t, q, "note", nop)
			stop := work(t, q, queue.WorkerOptions{})
			enqueue(t, q, queue.Task{Kind: "note", Args: 1})
			d.empty(t)
			require.NoError(t, stop(), "stop")
			dialer.Arm(k, mode, nil)
			require.NoError(t, q.Close(suite.Soon(t)), "close, %v call %d", mode, k)
			struck = dialer.Disarm()
			assert.Zero(t, d.count(t, suite.Members), "%v call %d: the queue is closed and its process has not left", mode, k)
			d.evict(t)
		}
	}
}
