package queue

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/queue"
)

func eachJobIsDoneOnce(t *testing.T, d *env) {
	const producers, each, bulk = 8, 50, 3000
	var did once
	var queues []*queue.Queue
	for range 3 {
		q := d.open(t, queue.Options{})
		handle(t, q, "count", func(_ context.Context, job queue.Job[int]) error {
			did.did(job.ID)
			return nil
		})
		queues = append(queues, q)
	}
	var mu sync.Mutex
	var all []queue.ID
	var producing sync.WaitGroup
	for range producers {
		producing.Go(func() {
			for n := range each {
				id, err := queues[n%len(queues)].Enqueue(suite.Soon(t), queue.Task{Kind: "count", Args: n})
				if err != nil {
					t.Error(err)
				}
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
	tasks := make([]queue.Task, bulk)
	for i := range tasks {
		tasks[i] = queue.Task{Kind: "count", Args: i}
	}
	made, err := queues[0].EnqueueMany(suite.Soon(t), tasks)
	if err != nil || len(made) != bulk {
		t.Fatalf("%d enqueued, %v", len(made), err)
	}
	producing.Wait()
	all = append(all, made...)
	d.empty(t)
	for _, stop := range stops {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
	if err := did.check(all, true); err != nil {
		t.Error(err)
	}
	if !slices.IsSortedFunc(made, func(a, b queue.ID) int { return slices.Compare(a[:], b[:]) }) {
		t.Error("the ids of one batch don't grow")
	}
}

// Whoever counts what is recorded counts each job once, and none before its end is committed.
func tellsWhatIsRecorded(t *testing.T, d *env) {
	const jobs = 700
	var recorded atomic.Int64
	all := make(chan struct{})
	q := d.open(t, queue.Options{Observer: queue.Observer{Recorded: func(name string, n int, took time.Duration) {
		sum := recorded.Add(int64(n)) // before those that are left are counted: others go on meanwhile
		var left int64
		if err := d.db.QueryRow("SELECT count(*) FROM dblock_queue_job").Scan(&left); err != nil || name != queue.DefaultQueue || took <= 0 {
			t.Errorf("queue %q, in %v: %v", name, took, err)
		}
		if left > jobs-sum {
			t.Errorf("%d are recorded, and %d of %d are left", sum, left, jobs)
		}
		if sum == jobs {
			close(all)
		}
	}}})
	handle(t, q, "count", func(_ context.Context, job queue.Job[int]) error {
		switch {
		case job.Args%7 == 0 && job.Attempt == 1:
			return errBadDay
		case job.Args%11 == 0:
			return queue.Cancel(errBadDay)
		}
		return nil
	})
	tasks := make([]queue.Task, jobs)
	for i := range tasks {
		tasks[i] = queue.Task{Kind: "count", Args: i}
	}
	enqueue(t, q, tasks...)
	work(t, q, queue.WorkerOptions{Batch: 50, Backoff: fast, Promote: 10 * time.Millisecond})
	wait(t, all, "the last end")
	d.empty(t)
	if n := recorded.Load(); n != jobs {
		t.Errorf("%d of %d are recorded", n, jobs)
	}
}

// Many who claim, and many who enqueue a little at a time: no deadlock, nothing is lost or done twice.
func manyClaimersAndProducersAgree(t *testing.T, d *env) {
	var did once
	trouble := make(chan error, 1)
	o := queue.Options{Observer: queue.Observer{Trouble: func(_ string, err error) {
		select {
		case trouble <- err:
		default:
		}
	}}}
	var all []queue.ID
	var mu sync.Mutex
	var producing sync.WaitGroup
	for n := range 4 {
		q := d.open(t, o)
		handle(t, q, "count", func(_ context.Context, job queue.Job[int]) error {
			if job.Attempt == 1 && job.ID[15]%10 == 0 {
				return errBadDay
			}
			did.did(job.ID)
			return nil
		})
		work(t, q, queue.WorkerOptions{Batch: 20, Exchanges: 3, Concurrency: 20, Backoff: fast, Promote: 10 * time.Millisecond})
		producing.Go(func() {
			for range 60 {
				made, err := q.EnqueueMany(suite.Soon(t), slices.Repeat([]queue.Task{{Kind: "count", Args: n + 1}}, 10))
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				all = append(all, made...)
				mu.Unlock()
			}
		})
	}
	producing.Wait()
	d.empty(t)
	if err := did.check(all, true); err != nil {
		t.Error(err)
	}
	select {
	case err := <-trouble:
		t.Errorf("trouble: %v", err)
	default:
	}
}

func aLoneJobIsDoneAtOnce(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	done := make(chan queue.Job[map[string]string], 1)
	handle(t, q, "greet", func(_ context.Context, job queue.Job[map[string]string]) error {
		done <- job
		return nil
	})
	work(t, q, queue.WorkerOptions{Poll: time.Minute})
	d.empty(t)
	for range 5 {
		id := enqueue(t, q, queue.Task{Kind: "greet", Args: map[string]string{"name": "ann"}, Priority: 3, MaxAttempts: 7})[0]
		got := wait(t, done, "the job")
		if got.ID != id || got.Args["name"] != "ann" || got.Priority != 3 || got.MaxAttempts != 7 || got.Attempt != 1 ||
			got.Kind != "greet" || got.Queue != "default" || got.EnqueuedAt.IsZero() || got.ReadyAt.Before(got.EnqueuedAt.Add(-time.Second)) {
			t.Errorf("%+v", got)
		}
		if parsed, err := queue.ParseID(id.String()); err != nil || parsed != id {
			t.Errorf("%v: %v", id, err)
		}
		d.empty(t)
	}
}

func lowerPrioritiesFirst(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	done := make(chan int, 100)
	handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
		done <- job.Args
		return nil
	})
	for n := range 12 {
		enqueue(t, q, queue.Task{Kind: "note", Args: n, Priority: int16(-n % 3)})
	}
	work(t, q, queue.WorkerOptions{Concurrency: 1})
	var got []int
	for range 12 {
		got = append(got, wait(t, done, "a job"))
	}
	if want := []int{2, 5, 8, 11, 1, 4, 7, 10, 0, 3, 6, 9}; !slices.Equal(got, want) {
		t.Errorf("begun in the order %v, want %v", got, want)
	}
}

func delayedJobsWait(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	done := make(chan int, 10)
	handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
		if waited := job.ReadyAt.Sub(job.EnqueuedAt); waited < time.Duration(job.Args-50)*time.Millisecond {
			t.Errorf("a job for in %d ms was ready after %v", job.Args, waited)
		}
		done <- job.Args
		return nil
	})
	work(t, q, queue.WorkerOptions{Promote: 10 * time.Millisecond})
	for _, ms := range []int{900, 300, 0} {
		enqueue(t, q, queue.Task{Kind: "note", Args: ms, Delay: time.Duration(ms) * time.Millisecond})
	}
	enqueue(t, q, queue.Task{Kind: "note", Args: -1, Delay: time.Hour})
	var got []int
	for range 3 {
		got = append(got, wait(t, done, "a job"))
	}
	if !slices.Equal(got, []int{0, 300, 900}) {
		t.Errorf("begun in the order %v", got)
	}
	d.until(t, "SELECT count(*) FROM dblock_queue_job", 1)
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_scheduled"); n != 1 {
		t.Errorf("%d scheduled", n)
	}
}

func aPausedQueueRests(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	done := make(chan string, 10)
	handle(t, q, "note", func(_ context.Context, job queue.Job[string]) error {
		done <- job.Args
		return nil
	})
	d.exec(t, "INSERT INTO dblock_queue (queue, paused_at) VALUES ('default', CURRENT_TIMESTAMP), ('other', NULL)")
	work(t, q, queue.WorkerOptions{Poll: 10 * time.Millisecond})
	work(t, q, queue.WorkerOptions{Queue: "other"})
	enqueue(t, q, queue.Task{Kind: "note", Args: "paused"}, queue.Task{Kind: "note", Args: "not paused", Queue: "other"})
	if got := wait(t, done, "the other queue"); got != "not paused" {
		t.Errorf("a job that is %s was run first", got)
	}
	d.exec(t, "UPDATE dblock_queue SET paused_at = NULL WHERE queue = 'default'")
	if got := wait(t, done, "the queue that was paused"); got != "paused" {
		t.Errorf("then %s", got)
	}
}

func middlewareIsAround(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	said := make(chan string, 10)
	handle(t, q, "note", func(ctx context.Context, job queue.Job[int]) error {
		said <- "handler " + ctx.Value(said).(string)
		return nil
	})
	say := func(name string) queue.Middleware {
		return func(ctx context.Context, job queue.Info, next queue.Next) error {
			said <- name + " " + job.Kind
			err := next(context.WithValue(ctx, said, "inside "+name))
			said <- name + " is left"
			return err
		}
	}
	work(t, q, queue.WorkerOptions{Middleware: []queue.Middleware{say("outer"), say("inner")}})
	enqueue(t, q, queue.Task{Kind: "note", Args: 1})
	for _, want := range []string{"outer note", "inner note", "handler inside inner", "inner is left", "outer is left"} {
		if got := wait(t, said, want); got != want {
			t.Errorf("said %q, want %q", got, want)
		}
	}
}
