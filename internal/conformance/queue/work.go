package queue

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/queue"
)

// produce enqueues with one call, in any goroutine.
func produce(t *testing.T, q *queue.Queue, tasks ...queue.Task) []queue.ID {
	t.Helper()
	made, err := q.EnqueueMany(suite.Soon(t), tasks)
	assert.NoError(t, err)
	return made
}

func eachJobIsDoneOnce(t *testing.T, d *env) {
	const processes, producers, each, bulk = 3, 8, 50, 2000
	var did once
	var queues []*queue.Queue
	var stops []func() error
	for range processes {
		q := d.open(t, queue.Options{})
		handle(t, q, "note", did.handle)
		queues, stops = append(queues, q), append(stops, work(t, q, queue.WorkerOptions{Batch: 70}))
	}
	var made []queue.ID
	all := make([][]queue.ID, producers)
	suite.Crowd(producers+1, func(p int) {
		if p == producers {
			made = produce(t, queues[0], repeat(bulk, queue.Task{Kind: "note"})...)
			return
		}
		for range each {
			all[p] = append(all[p], produce(t, queues[p%processes], queue.Task{Kind: "note"})...)
		}
	})
	d.empty(t)
	for _, stop := range stops {
		assert.NoError(t, stop())
	}
	did.exactly(t, slices.Concat(append(all, made)...))
	grow := slices.IsSortedFunc(made, func(a, b queue.ID) int { return slices.Compare(a[:], b[:]) })
	assert.True(t, grow, "the ids of one call grow")
}

// The observer counts each job once, and none before its end is committed.
func tellsWhatIsRecorded(t *testing.T, d *env) {
	const jobs = 300
	var recorded atomic.Int64
	all := make(chan struct{})
	var o queue.Options
	o.Observer.Recorded = func(name string, n int, took time.Duration) {
		sum := recorded.Add(int64(n)) // before those that are left are counted, since others end meanwhile
		var left int64
		assert.NoError(t, d.db.QueryRow("SELECT count(*) FROM dblock_queue_job").Scan(&left))
		assert.LessOrEqual(t, left, jobs-sum, "jobs left when %d are recorded", sum)
		assert.Equal(t, queue.DefaultQueue, name)
		assert.Positive(t, took)
		if sum == jobs {
			close(all)
		}
	}
	enqueueMany(t, d.open(t, queue.Options{}), repeat(jobs, queue.Task{Kind: "note"}))
	wo := queue.WorkerOptions{Batch: 20, Backoff: fast, Promote: 10 * time.Millisecond}
	d.process(t, o, wo, func(_ context.Context, job queue.Job[int]) error {
		switch {
		case job.Args%7 == 0 && job.Attempt == 1:
			return errBadDay
		case job.Args%11 == 0:
			return queue.Cancel(errBadDay)
		}
		return nil
	})
	wait(t, all, "the last end")
	d.empty(t)
	assert.EqualValues(t, jobs, recorded.Load())
}

// Many workers claim, and many producers enqueue small batches.
func manyClaimersAndProducersAgree(t *testing.T, d *env) {
	const producers, batches = 4, 60
	var did once
	trouble := make(chan error, 1000)
	var o queue.Options
	o.Observer.Trouble = func(_ string, err error) { trouble <- err }
	wo := queue.WorkerOptions{Batch: 20, Exchanges: 3, Concurrency: 20, Backoff: fast, Promote: 10 * time.Millisecond}
	var queues []*queue.Queue
	for range producers {
		queues = append(queues, d.process(t, o, wo, did.handleLater))
	}
	all := make([][]queue.ID, producers)
	suite.Crowd(producers, func(p int) {
		for range batches {
			all[p] = append(all[p], produce(t, queues[p], repeat(10, queue.Task{Kind: "note"})...)...)
		}
	})
	d.empty(t)
	did.exactly(t, slices.Concat(all...))
	for range len(trouble) {
		assert.NoError(t, <-trouble)
	}
}

func aLoneJobIsDoneAtOnce(t *testing.T, d *env) {
	q, done := d.open(t, queue.Options{}), make(chan queue.Job[map[string]string], 1)
	handle(t, q, "greet", func(_ context.Context, job queue.Job[map[string]string]) error {
		done <- job
		return nil
	})
	work(t, q, queue.WorkerOptions{Poll: time.Minute})
	d.empty(t)
	args := map[string]string{"name": "ann"}
	for range 5 {
		id := enqueue(t, q, queue.Task{Kind: "greet", Args: args, Priority: 3, MaxAttempts: 7})[0]
		got := wait(t, done, "the job")
		assert.False(t, got.EnqueuedAt.IsZero())
		assert.False(t, got.ReadyAt.Before(got.EnqueuedAt.Add(-time.Second)), "%v, %v", got.ReadyAt, got.EnqueuedAt)
		got.EnqueuedAt, got.ReadyAt = time.Time{}, time.Time{}
		assert.Equal(t, queue.Job[map[string]string]{Args: args, Info: queue.Info{
			ID: id, Kind: "greet", Queue: "default", Priority: 3, MaxAttempts: 7, Attempt: 1,
		}}, got)
		parsed, err := queue.ParseID(id.String())
		require.NoError(t, err)
		assert.Equal(t, id, parsed)
		d.empty(t)
	}
}

// One exchange at a time claims jobs, since two overtake each other.
func lowerPrioritiesFirst(t *testing.T, d *env) {
	const jobs = 12
	done := make(chan int, jobs)
	tasks := repeat(jobs, queue.Task{Kind: "note"})
	for n := range tasks {
		tasks[n].Priority = int16(-n % 3)
	}
	enqueue(t, d.open(t, queue.Options{}), tasks...)
	d.process(t, queue.Options{}, queue.WorkerOptions{Concurrency: 1, Exchanges: 1}, record(done))
	var got []int
	for range jobs {
		got = append(got, wait(t, done, "a job"))
	}
	assert.Equal(t, []int{2, 5, 8, 11, 1, 4, 7, 10, 0, 3, 6, 9}, got)
}

func delayedJobsWait(t *testing.T, d *env) {
	done, start := make(chan int, 10), time.Now()
	q := d.process(t, queue.Options{}, quickly, func(_ context.Context, job queue.Job[int]) error {
		delay := time.Duration(job.Args) * time.Millisecond
		assert.GreaterOrEqual(t, time.Since(start), delay)
		assert.GreaterOrEqual(t, job.ReadyAt.Sub(job.EnqueuedAt), delay-50*time.Millisecond)
		done <- job.Args
		return nil
	})
	enqueue(t, q, queue.Task{Kind: "note", Args: -1, Delay: time.Hour})
	for _, ms := range []int{400, 100, 0} {
		enqueue(t, q, queue.Task{Kind: "note", Args: ms, Delay: time.Duration(ms) * time.Millisecond})
	}
	var got []int
	for range 3 {
		got = append(got, wait(t, done, "a job"))
	}
	assert.ElementsMatch(t, []int{0, 100, 400}, got)
	d.until(t, "SELECT count(*) FROM dblock_queue_job", 1)
	d.rows(t, "scheduled", 1)
}

func middlewareIsAround(t *testing.T, d *env) {
	said := make(chan string, 10)
	around := func(name string) queue.Middleware {
		return func(ctx context.Context, job queue.Info, next queue.Next) error {
			said <- name + " " + job.Kind
			err := next(context.WithValue(ctx, said, "inside "+name))
			said <- name + " is left"
			return err
		}
	}
	wo := queue.WorkerOptions{Middleware: []queue.Middleware{around("outer"), around("inner")}}
	q := d.process(t, queue.Options{}, wo, func(ctx context.Context, _ queue.Job[int]) error {
		said <- "handler " + ctx.Value(said).(string)
		return nil
	})
	enqueue(t, q, queue.Task{Kind: "note", Args: 1})
	for _, want := range []string{
		"outer note", "inner note", "handler inside inner", "inner is left", "outer is left",
	} {
		assert.Equal(t, want, wait(t, said, want))
	}
}
