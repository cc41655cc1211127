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

func triesAgainUntilItIsDone(t *testing.T, d *env) {
	failed := make(chan queue.Info, 10)
	q := d.open(t, queue.Options{Observer: queue.Observer{Failed: func(job queue.Info, err error, again time.Duration) {
		assert.ErrorIs(t, err, errBadDay)
		assert.Equal(t, time.Millisecond, again)
		failed <- job
	}}})
	done := make(chan int, 10)
	handle(t, q, "note", func(_ context.Context, job queue.Job[string]) error {
		if job.Attempt < 3 {
			return errBadDay
		}
		done <- job.Attempt
		return nil
	})
	work(t, q, queue.WorkerOptions{Backoff: fast, Promote: 10 * time.Millisecond})
	enqueue(t, q, queue.Task{Kind: "note"})
	assert.Equal(t, 3, wait(t, done, "third attempt"))
	for n := 1; n <= 2; n++ {
		assert.Equal(t, n, wait(t, failed, "observer").Attempt)
	}
	d.empty(t)
}

func givesUpAfterTheLastAttempt(t *testing.T, d *env) {
	dead := make(chan queue.Info, 1)
	q := d.open(t, queue.Options{Observer: queue.Observer{Dead: func(job queue.Info, _ error) { dead <- job }}})
	handle(t, q, "note", func(context.Context, queue.Job[string]) error {
		return errors.New("worse\x00 \xff than ever")
	}, retriesAtOnce)
	work(t, q, queue.WorkerOptions{})
	id := enqueue(t, q, queue.Task{Kind: "note", Args: "x", MaxAttempts: 2})[0]
	got := wait(t, dead, "dead job")
	assert.Equal(t, id, got.ID)
	assert.Equal(t, 2, got.Attempt)
	d.empty(t)
	d.rows(t, "dead WHERE attempt = 2", 1)
	assert.Equal(t, "worse\uFFFD \uFFFD than ever", d.text(t, "SELECT last_error FROM dblock_queue_dead"))
	assert.Equal(t, `"x"`, d.text(t, "SELECT payload FROM dblock_queue_dead"))
}

// Panics and exits are errors of one job. The other jobs of the batch are done.
func handlersMayDoWhatTheyLike(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	var fine once
	handle(t, q, "note", func(ctx context.Context, job queue.Job[int]) error {
		switch job.Args {
		case 3:
			panic(errBadDay)
		case 5:
			runtime.Goexit()
		case 7:
			panic("too bad")
		}
		return fine.handle(ctx, job)
	})
	enqueue(t, q, repeat(10, queue.Task{Kind: "note", MaxAttempts: 1})...)
	stop := work(t, q, queue.WorkerOptions{Concurrency: 1})
	d.empty(t)
	assert.NoError(t, stop())
	assert.Equal(t, 7, fine.done())
	d.rows(t, "dead", 3)
	for _, want := range []string{"a bad day", "runtime.Goexit", "too bad"} {
		d.rows(t, "dead WHERE last_error LIKE '%"+want+"%'", 1)
	}
	d.rows(t, "dead WHERE last_error LIKE '%queue/ends.go%'", 2) // they have a stack
}

func aHandlerHasItsTime(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	causes := make(chan error, 1)
	handle(t, q, "note", func(ctx context.Context, _ queue.Job[string]) error {
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return ctx.Err()
	}, queue.Timeout(50*time.Millisecond))
	work(t, q, queue.WorkerOptions{Timeout: -1})
	enqueue(t, q, queue.Task{Kind: "note", MaxAttempts: 1})
	assert.ErrorIs(t, wait(t, causes, "end of its time"), queue.ErrTimeout)
	d.empty(t)
	assert.Contains(t, d.text(t, "SELECT last_error FROM dblock_queue_dead"), "longer than its timeout of 50ms")
}

func putsOffWhatIsSnoozed(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	done := make(chan int, 1)
	times := 0
	handle(t, q, "note", func(_ context.Context, job queue.Job[string]) error {
		if times++; times < 4 {
			return queue.Snooze(20 * time.Millisecond)
		}
		done <- job.Attempt
		return nil
	})
	work(t, q, queue.WorkerOptions{Concurrency: 1, Promote: 10 * time.Millisecond})
	enqueue(t, q, queue.Task{Kind: "note", MaxAttempts: 1})
	assert.Equal(t, 1, wait(t, done, "job"))
	d.empty(t)
}

// observeEnds returns an observer of jobs that are dead or cancelled, and what it hears.
func observeEnds() (queue.Observer, chan string) {
	seen := make(chan string, 4)
	return queue.Observer{
		Dead:      func(job queue.Info, err error) { seen <- job.Kind + " is dead: " + err.Error() },
		Cancelled: func(job queue.Info, err error) { seen <- job.Kind + " is cancelled: " + err.Error() },
	}, seen
}

func discardsAndCancels(t *testing.T, d *env) {
	observer, seen := observeEnds()
	q := d.open(t, queue.Options{Observer: observer})
	handle(t, q, "discard", func(context.Context, queue.Job[string]) error { return queue.Discard(errBadDay) })
	handle(t, q, "cancel", func(context.Context, queue.Job[string]) error { return queue.Cancel(errBadDay) })
	stop := work(t, q, queue.WorkerOptions{Concurrency: 1})
	enqueue(t, q, queue.Task{Kind: "discard"}, queue.Task{Kind: "cancel"})
	for _, want := range []string{"discard is dead: a bad day", "cancel is cancelled: a bad day"} {
		assert.Equal(t, want, wait(t, seen, want))
	}
	d.empty(t)
	assert.NoError(t, stop())
	d.rows(t, "dead", 1)
	d.rows(t, "dead WHERE kind = 'discard' AND last_error = 'a bad day'", 1)
}

// The text around a decision is kept with it, and observers hear of jobs that are ended while they
// wait.
func theReasonIsKeptWhole(t *testing.T, d *env) {
	observer, seen := observeEnds()
	q := d.open(t, queue.Options{Observer: observer})
	for kind, decision := range map[string]func(error) error{"discard": queue.Discard, "cancel": queue.Cancel} {
		err := fmt.Errorf("order 7: %w", decision(errBadDay))
		handle(t, q, kind, func(context.Context, queue.Job[string]) error { return err })
	}
	later := queue.Task{Kind: "later", Delay: time.Hour}
	waits := enqueue(t, q, queue.Task{Kind: "ready"}, later, queue.Task{Kind: "given up"})
	cancel(t, q, waits[0], queue.Ready)
	cancel(t, q, waits[1], queue.Scheduled)
	assert.NoError(t, q.Discard(t.Context(), waits[2], "too late"))
	work(t, q, queue.WorkerOptions{})
	for _, want := range []string{
		"ready is cancelled: " + queue.ErrCancelled.Error(), "later is cancelled: " + queue.ErrCancelled.Error(),
		"given up is dead: too late", "discard is dead: order 7: a bad day", "cancel is cancelled: order 7: a bad day",
	} {
		if strings.HasSuffix(want, "day") {
			enqueue(t, q, queue.Task{Kind: strings.Fields(want)[0]})
		}
		assert.Equal(t, want, wait(t, seen, want))
	}
	d.empty(t)
	d.rows(t, "dead WHERE kind = 'discard' AND last_error = 'order 7: a bad day'", 1)
}

func anUndecodableJobFailsAlone(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	done := make(chan int, 10)
	handle(t, q, "number", record(done))
	for _, args := range []any{1, "two", 3} {
		enqueue(t, q, queue.Task{Kind: "number", Args: args, MaxAttempts: 1})
	}
	work(t, q, queue.WorkerOptions{Concurrency: 1})
	assert.ElementsMatch(t, []int{1, 3}, []int{wait(t, done, "job"), wait(t, done, "job")})
	d.empty(t)
	last := d.text(t, "SELECT last_error FROM dblock_queue_dead")
	assert.Contains(t, last, `can't be decoded: of kind "number", into int`)
}

// A job of a kind that its process does not know waits for a process that does. It costs no
// attempt, and other jobs are done. Observer.Trouble hears of the kind once in a while.
func anUnknownKindWaits(t *testing.T, d *env) {
	began, troubles, snoozed := time.Now(), make(chan error, 1000), make(chan time.Duration, 1000)
	q := d.open(t, queue.Options{Observer: queue.Observer{
		Trouble: func(_ string, err error) { troubles <- err },
		Snoozed: func(_ queue.Info, again time.Duration) { snoozed <- again },
	}})
	done := make(chan int, 10)
	handle(t, q, "number", record(done))
	enqueue(t, q, queue.Task{Kind: "unknown", Args: 1, MaxAttempts: 1},
		queue.Task{Kind: "unknown", Args: 2, MaxAttempts: 1, Group: "g"}, queue.Task{Kind: "number", Args: 3})
	stop := work(t, q, queue.WorkerOptions{Concurrency: 1})
	assert.Equal(t, 3, wait(t, done, "job"))
	d.until(t, "SELECT count(*) FROM dblock_queue_scheduled", 2)
	for range 2 {
		assert.Positive(t, wait(t, snoozed, "job that is put off"))
	}
	assert.NoError(t, stop())
	reports := 0
	for len(troubles) > 0 {
		if err := <-troubles; errors.Is(err, queue.ErrUnknownKind) {
			reports++
			assert.ErrorContains(t, err, `no handler for this kind: "unknown"`)
		}
	}
	assert.Positive(t, reports)
	assert.LessOrEqual(t, reports, 1+int(time.Since(began)/time.Minute))
	d.rows(t, "job WHERE attempt = 0 AND last_error IS NULL", 2)
	knows := d.open(t, queue.Options{})
	handle(t, knows, "unknown", nop)
	work(t, knows, queue.WorkerOptions{})
	d.empty(t)
	d.rows(t, "dead", 0)
}

// Two processes know one kind each. All jobs of both kinds run, with one attempt.
func eachKindFindsItsProcess(t *testing.T, d *env) {
	const jobs = 40
	var did once
	made := enqueueMany(t, d.open(t, queue.Options{}), append(repeat(jobs, queue.Task{Kind: "a", MaxAttempts: 1}),
		repeat(jobs, queue.Task{Kind: "b", MaxAttempts: 1})...))
	for _, kind := range []string{"a", "b"} {
		q := d.open(t, queue.Options{})
		handle(t, q, kind, did.handle)
		work(t, q, queue.WorkerOptions{})
	}
	d.empty(t)
	did.exactly(t, made)
	d.rows(t, "dead", 0)
}

// Close lets handlers go on for Grace, and the Queue serves them until then: a last attempt that
// enqueues does not kill its job.
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
	over, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errBadDay)
	defer cancel()
	assert.ErrorIs(t, q.Close(over), errBadDay, "a second close whose context ends while the handler runs")
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

// The connection of each call that Close makes is cut. The process leaves by another connection, at
// once.
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
