package queue

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/queue"
)

func eachJobIsDoneOnce(t *testing.T, d *env) {
	const producers, each, bulk = 8, 50, 2000
	var did once
	var queues []*queue.Queue
	for range 3 {
		q := d.open(t, queue.Options{})
		handle(t, q, "note", did.handle)
		queues = append(queues, q)
	}
	var mu sync.Mutex
	var all []queue.ID
	var producing sync.WaitGroup
	for range producers {
		producing.Go(func() {
			for n := range each {
				id, err := queues[n%len(queues)].Enqueue(suite.Soon(t), queue.Task{Kind: "note", Args: n})
				assert.NoError(t, err)
				mu.Lock()
				all = append(all, id)
				mu.Unlock()
			}
		})
	}
	var stops []func() error
	for _, q := range queues {
		stops = append(stops, work(t, q, queue.WorkerOptions{Batch: 70}))
	}
	made := enqueueMany(t, queues[0], repeat(bulk, queue.Task{Kind: "note"}))
	producing.Wait()
	d.empty(t)
	for _, stop := range stops {
		assert.NoError(t, stop())
	}
	did.exactly(t, append(all, made...))
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
	q := d.open(t, o)
	handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
		switch {
		case job.Args%7 == 0 && job.Attempt == 1:
			return errBadDay
		case job.Args%11 == 0:
			return queue.Cancel(errBadDay)
		}
		return nil
	})
	enqueue(t, q, repeat(jobs, queue.Task{Kind: "note"})...)
	work(t, q, queue.WorkerOptions{Batch: 20, Backoff: fast, Promote: 10 * time.Millisecond})
	wait(t, all, "the last end")
	d.empty(t)
	assert.EqualValues(t, jobs, recorded.Load())
}

// Many workers claim, and many producers enqueue small batches.
func manyClaimersAndProducersAgree(t *testing.T, d *env) {
	var did once
	trouble := make(chan error, 1000)
	var o queue.Options
	o.Observer.Trouble = func(_ string, err error) { trouble <- err }
	var all []queue.ID
	var mu sync.Mutex
	var producing sync.WaitGroup
	for n := range 4 {
		q := d.open(t, o)
		handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
			if job.Attempt == 1 && job.ID[15]%10 == 0 {
				return errBadDay
			}
			did.did(job.ID)
			return nil
		})
		wo := quickly
		wo.Batch, wo.Exchanges, wo.Concurrency, wo.Poll = 20, 3, 20, 0
		work(t, q, wo)
		producing.Go(func() {
			for range 60 {
				made, err := q.EnqueueMany(suite.Soon(t), slices.Repeat([]queue.Task{{Kind: "note", Args: n + 1}}, 10))
				assert.NoError(t, err)
				mu.Lock()
				all = append(all, made...)
				mu.Unlock()
			}
		})
	}
	producing.Wait()
	d.empty(t)
	did.exactly(t, all)
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
	q, done := d.open(t, queue.Options{}), make(chan int, jobs)
	handle(t, q, "note", record(done))
	for n := range jobs {
		enqueue(t, q, queue.Task{Kind: "note", Args: n, Priority: int16(-n % 3)})
	}
	work(t, q, queue.WorkerOptions{Concurrency: 1, Exchanges: 1})
	var got []int
	for range jobs {
		got = append(got, wait(t, done, "a job"))
	}
	assert.Equal(t, []int{2, 5, 8, 11, 1, 4, 7, 10, 0, 3, 6, 9}, got)
}

func delayedJobsWait(t *testing.T, d *env) {
	q, done := d.open(t, queue.Options{}), make(chan int, 10)
	start := time.Now()
	handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
		delay := time.Duration(job.Args) * time.Millisecond
		assert.GreaterOrEqual(t, time.Since(start), delay)
		assert.GreaterOrEqual(t, job.ReadyAt.Sub(job.EnqueuedAt), delay-50*time.Millisecond)
		done <- job.Args
		return nil
	})
	work(t, q, queue.WorkerOptions{Promote: 10 * time.Millisecond})
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
	q, said := d.open(t, queue.Options{}), make(chan string, 10)
	handle(t, q, "note", func(ctx context.Context, _ queue.Job[int]) error {
		said <- "handler " + ctx.Value(said).(string)
		return nil
	})
	around := func(name string) queue.Middleware {
		return func(ctx context.Context, job queue.Info, next queue.Next) error {
			said <- name + " " + job.Kind
			err := next(context.WithValue(ctx, said, "inside "+name))
			said <- name + " is left"
			return err
		}
	}
	work(t, q, queue.WorkerOptions{Middleware: []queue.Middleware{around("outer"), around("inner")}})
	enqueue(t, q, queue.Task{Kind: "note", Args: 1})
	for _, want := range []string{
		"outer note", "inner note", "handler inside inner", "inner is left", "outer is left",
	} {
		assert.Equal(t, want, wait(t, said, want))
	}
}
