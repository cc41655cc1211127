package queue

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
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

// Jobs end in their last attempts, for the reasons that their handlers give, or while they wait.
// Observers are called, and dead jobs keep the reason. The other jobs are done.
func (mainTests) EachEndHasItsReason(t *testing.T, d *env) {
	heard := make(chan []string, 100)
	clean := strings.NewReplacer("\x00", "\uFFFD", "\xff", "\uFFFD").Replace
	hear := func(how string) func(queue.Info, error) {
		return func(job queue.Info, err error) { heard <- []string{job.Kind, how, clean(err.Error())} }
	}
	var o queue.Options
	o.Observer.Discarded, o.Observer.Cancelled = hear("dead"), hear("cancelled")
	o.Observer.Failed = func(job queue.Info, err error, again time.Duration) {
		assert.Equal(t, time.Millisecond, again)
		hear("failed")(job, err)
	}
	q := d.open(t, o)
	order := func(decision error) error { return fmt.Errorf("order 7: %w", decision) }
	worse := errors.New("worse\x00 \xff than ever")
	ends := map[string]struct {
		fn        func(context.Context) error
		how, says string
	}{
		"fails":     {func(context.Context) error { return worse }, "dead", clean(worse.Error())},
		"takes":     {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, "dead", "its timeout of 50ms"},
		"panics":    {func(context.Context) error { panic(errBadDay) }, "dead", "a bad day"},
		"shouts":    {func(context.Context) error { panic("too bad") }, "dead", "too bad"},
		"exits":     {func(context.Context) error { runtime.Goexit(); return nil }, "dead", "runtime.Goexit"},
		"discards":  {func(context.Context) error { return order(queue.Discard(errBadDay)) }, "dead", "order 7: a bad day"},
		"cancels":   {func(context.Context) error { return order(queue.Cancel(errBadDay)) }, "cancelled", "7: a bad day"},
		"decodes":   {func(context.Context) error { return nil }, "dead", `can't be decoded: of kind "decodes", into int`},
		"ready":     {nil, "cancelled", queue.ErrCancelled.Error()},
		"scheduled": {nil, "cancelled", queue.ErrCancelled.Error()},
		"given up":  {nil, "dead", "too late"},
	}
	waits := enqueue(t, q, queue.Task{Kind: "ready"}, queue.Task{Kind: "scheduled", Delay: time.Hour},
		queue.Task{Kind: "given up"})
	cancel(t, q, waits[0], queue.JobReady)
	cancel(t, q, waits[1], queue.JobScheduled)
	assert.NoError(t, q.Discard(t.Context(), waits[2], "too late"))
	var fine once
	handle(t, q, "note", fine.handle)
	made := enqueue(t, q, repeat(5, queue.Task{Kind: "note"})...)
	for kind, end := range ends {
		if end.fn == nil {
			continue
		}
		task, opts := queue.Task{Kind: kind, Args: 1, MaxAttempts: 1}, []queue.HandlerOption(nil)
		switch kind {
		case "fails":
			task.MaxAttempts = 2
		case "takes":
			opts = append(opts, queue.Timeout(50*time.Millisecond))
		case "decodes":
			task.Args = "two"
		}
		handle(t, q, kind, func(ctx context.Context, _ queue.Job[int]) error { return end.fn(ctx) }, opts...)
		enqueue(t, q, task)
	}
	stop := work(t, q, queue.WorkerOptions{Concurrency: 3, Backoff: fast})
	for range 1 + len(ends) {
		got := suite.Wait(t, heard, "an end")
		want := ends[got[0]]
		if got[1] != "failed" {
			assert.Equal(t, want.how, got[1], got[0])
		}
		assert.Contains(t, got[2], want.says, got[0])
	}
	d.empty(t)
	assert.NoError(t, stop())
	fine.exactly(t, made)
	for kind, end := range ends {
		if end.how == "dead" {
			assert.Contains(t, d.Text(t, "SELECT last_error FROM dblock_queue_dead WHERE kind = '"+kind+"'"), end.says)
		}
	}
	d.rows(t, "dead", 8)
	d.rows(t, "dead WHERE kind = 'fails' AND attempt = 2", 1)
	d.rows(t, "dead WHERE last_error LIKE '%queue/ends.go%'", 2) // panics have a stack
	assert.Equal(t, "1", d.Text(t, "SELECT payload FROM dblock_queue_dead WHERE kind = 'fails'"))
}

// A job of a kind that its process does not know waits for a process that does. It costs no
// attempt, and other jobs are done. Observer.Trouble reports the kind now and then. With a process
// for each kind all jobs are done.
func (mainTests) AnUnknownKindWaits(t *testing.T, d *env) {
	began, troubles, snoozed := time.Now(), make(chan error, 1000), make(chan time.Duration, 1000)
	q := d.open(t, queue.Options{Observer: queue.Observer{
		Trouble: func(_ string, err error) { troubles <- err },
		Snoozed: func(_ queue.Info, again time.Duration) { snoozed <- again },
	}})
	done := make(chan int, 100)
	handle(t, q, "number", record(done))
	enqueue(t, q, queue.Task{Kind: "unknown", Args: 1, MaxAttempts: 1},
		queue.Task{Kind: "unknown", Args: 2, MaxAttempts: 1, Group: "g"}, queue.Task{Kind: "number", Args: 3})
	stop := work(t, q, queue.WorkerOptions{Concurrency: 1})
	assert.Equal(t, 3, suite.Wait(t, done, "job"))
	d.Until(t, "SELECT count(*) FROM dblock_queue_scheduled", 2)
	for range 2 {
		assert.Positive(t, suite.Wait(t, snoozed, "job that is put off"))
	}
	reports := 0
	for len(troubles) > 0 {
		if err := <-troubles; errors.Is(err, queue.ErrUnknownKind) {
			reports++
			assert.ErrorContains(t, err, `no handler for this kind: "unknown"`)
		}
	}
	assert.Positive(t, reports)
	assert.LessOrEqual(t, reports, 1+int(time.Since(began)/time.Minute))
	d.rows(t, "job WHERE kind = 'unknown' AND attempt = 0 AND last_error IS NULL", 2)
	require.NoError(t, stop())
	for _, kind := range []string{"number", "unknown"} { // with slots alike, each gets about half of the jobs at each try
		knows := d.open(t, queue.Options{})
		handle(t, knows, kind, nop)
		work(t, knows, queue.WorkerOptions{})
		enqueueMany(t, knows, repeat(5, queue.Task{Kind: kind, MaxAttempts: 1}))
	}
	d.empty(t)
	d.rows(t, "dead", 0)
}

// Close lets handlers go on for Grace, and the Queue serves them until then: a last attempt that
// enqueues does not kill its job.
func (mainTests) HandlersMayEnqueueDuringClose(t *testing.T, d *env) {
	for _, kind := range []string{"plain", "tx"} {
		q, held := d.open(t, queue.Options{}), newHolder(t)
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
		assert.NoError(t, errors.Join(suite.Wait(t, closed, "close"), suite.Wait(t, worked, "end of work")), kind)
		d.rows(t, "dead", 0)
	}
	d.rows(t, "job WHERE kind = 'follows'", 4)
	d.rows(t, "job WHERE kind <> 'follows'", 0)
}

// closes calls Close and waits until it has begun. The channel has its result.
func closes(t *testing.T, q *queue.Queue) <-chan error {
	t.Helper()
	closed := make(chan error, 1)
	go func() { closed <- suite.CloseWithin(q, time.Minute) }()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	suite.Until(t, "Close has begun", func() bool {
		return errors.Is(q.Work(ended, queue.WorkerOptions{Queue: "none"}), dblock.ErrClosed)
	})
	return closed
}

func (mainTests) ASecondCloseWaits(t *testing.T, d *env) {
	q, held := d.open(t, queue.Options{}), newHolder(t)
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
	over, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errBadDay)
	defer cancel()
	assert.ErrorIs(t, q.Close(over), errBadDay, "a second close whose context ends while the handler runs")
	second := make(chan error, 1)
	go func() {
		err := suite.CloseWithin(q, time.Minute)
		assert.True(t, done.Load(), "it did not wait for the handler")
		second <- err
	}()
	close(held.end)
	assert.NoError(t, suite.Wait(t, first, "close"))
	assert.NoError(t, suite.Wait(t, second, "second close"))
	assert.Zero(t, d.Count(t, suite.Members))
}

// Each method but Close returns ErrClosed and does nothing else.
func (mainTests) AClosedQueueRefusesAllCalls(t *testing.T, d *env) {
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

// The connection of each call that Close makes is cut. The process leaves by another connection, at
// once.
func (faultTests) ACloseCutAnywhere(t *testing.T, d *env) {
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
			assert.Zero(t, d.Count(t, suite.Members), "%v call %d: the queue is closed and its process has not left", mode, k)
			d.evict(t)
		}
	}
}
