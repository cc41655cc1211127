package queue

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/queue"
)

// env is a database with dblock's tables.
type env struct {
	*suite.DB
	e Queue
}

func (e Queue) env(t *testing.T) *env {
	t.Helper()
	return &env{suite.Migrated(t, e.Kind), e}
}

// as is d for the user of a DSN.
func (d *env) as(dsn string) *env { return &env{d.DB.As(dsn), d.e} }

// open makes a Queue as a process of its own would have it.
func (d *env) open(t *testing.T, o queue.Options) *queue.Queue {
	t.Helper()
	q, closePool, err := d.e.Open(t.Context(), d.DSN, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, suite.CloseWithin(q, time.Minute), "close")
		closePool()
	})
	return q
}

// openOn is open over a dialer's connections. They may be broken in the end, so Close may fail.
func (d *env) openOn(t *testing.T, dialer *faultconn.Dialer, o queue.Options) *queue.Queue {
	t.Helper()
	q, closePool, err := d.e.OpenOn(t.Context(), d.DSN, dialer, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		dialer.Disarm()
		dialer.Release()
		_ = suite.CloseWithin(q, time.Minute)
		closePool()
	})
	return q
}

// handle registers a handler.
func handle[T any](t *testing.T, q *queue.Queue, kind string, fn func(context.Context, queue.Job[T]) error,
	opts ...queue.HandlerOption) {
	t.Helper()
	require.NoError(t, queue.Handle(q, kind, fn, opts...))
}

// enqueue enqueues tasks one by one.
func enqueue(t *testing.T, q *queue.Queue, tasks ...queue.Task) (made []queue.ID) {
	t.Helper()
	for _, task := range tasks {
		made = append(made, suite.Must(q.Enqueue(suite.Soon(t), task))(t))
	}
	return made
}

// enqueueMany enqueues tasks with one call.
func enqueueMany(t *testing.T, q *queue.Queue, tasks []queue.Task) []queue.ID {
	t.Helper()
	return suite.Must(q.EnqueueMany(suite.Soon(t), tasks))(t)
}

// repeat returns n tasks. The arguments of each are its number.
func repeat(n int, task queue.Task) []queue.Task {
	tasks := make([]queue.Task, n)
	for i := range tasks {
		task.Args = i
		tasks[i] = task
	}
	return tasks
}

// work runs a worker until stop is called, which returns what Work does.
func work(t *testing.T, q *queue.Queue, o queue.WorkerOptions) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- q.Work(ctx, o) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { _ = stop() })
	return stop
}

// rescue rescues jobs: so many run again, and so many are dead.
func rescue(t *testing.T, q *queue.Queue, again, dead int) {
	t.Helper()
	ready, died, err := q.Rescue(suite.Soon(t))
	require.NoError(t, err, "rescue")
	assert.Equal(t, []int{again, dead}, []int{ready, died}, "rescued to run again, and dead")
}

// cancel cancels a job, which must be in a state.
func cancel(t *testing.T, q *queue.Queue, id queue.ID, want queue.JobState) {
	t.Helper()
	was, err := q.Cancel(suite.Soon(t), id)
	assert.NoError(t, err, "cancel")
	assert.Equal(t, want, was, "state of the cancelled job %v", id)
}

func (d *env) exec(t *testing.T, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		d.Exec(t, statement)
	}
}

// sql returns the statement of the env's engine. MariaDB's is MySQL's.
func (d *env) sql(postgres, mysql string) string {
	if d.Postgres() {
		return postgres
	}
	return mysql
}

// rows asserts how many rows a table of the queue has, as in rows(t, "dead WHERE attempt = 2", 1).
func (d *env) rows(t *testing.T, table string, want int) {
	t.Helper()
	assert.EqualValues(t, want, d.Count(t, "SELECT count(*) FROM dblock_queue_"+table), "rows of "+table)
}

// empty waits until nothing is left of any job, but for the dead.
func (d *env) empty(t *testing.T) {
	t.Helper()
	for _, table := range []string{"job", "ready", "scheduled", "claim", "unique", "key", "blocked"} {
		d.Until(t, "SELECT count(*) FROM dblock_queue_"+table, 0)
	}
}

// evict has all processes be taken for dead.
func (d *env) evict(t *testing.T) {
	t.Helper()
	d.exec(t, "DELETE FROM dblock_member")
}

// holder is a handler that holds its jobs until the test ends them, or has ended.
type holder struct {
	began chan queue.Info
	end   chan error // ends one job; closed, it ends all
	test  context.Context
}

func newHolder(t *testing.T) *holder {
	return &holder{make(chan queue.Info, 10_000), make(chan error), t.Context()}
}

func (h *holder) handle(_ context.Context, job queue.Job[int]) error {
	h.began <- job.Info
	return h.held(h.test)
}

// obey is handle for jobs that end with their contexts, too.
func (h *holder) obey(ctx context.Context, job queue.Job[int]) error {
	h.began <- job.Info
	return h.held(ctx)
}

func (h *holder) held(ctx context.Context) error {
	select {
	case err := <-h.end:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-h.test.Done():
		return h.test.Err()
	}
}

// has waits until n more jobs have begun.
func (h *holder) has(t *testing.T, n int) (jobs []queue.Info) {
	t.Helper()
	for range n {
		jobs = append(jobs, suite.Wait(t, h.began, "job that begins"))
	}
	return jobs
}

// once counts how often each job was done.
type once struct {
	mu    sync.Mutex
	times map[queue.ID]int
}

// handle is a handler that counts its jobs.
func (o *once) handle(_ context.Context, job queue.Job[int]) error {
	o.did(job.ID)
	return nil
}

func (o *once) did(id queue.ID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.times == nil {
		o.times = make(map[queue.ID]int)
	}
	o.times[id]++
}

func (o *once) done() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.times)
}

// exactly asserts that these jobs were done once each, and no others.
func (o *once) exactly(t *testing.T, jobs []queue.ID) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	want := map[queue.ID]int{}
	for _, id := range jobs {
		want[id] = 1
	}
	assert.True(t, maps.Equal(want, o.times), "%d jobs were done once each: %d were done", len(jobs), len(o.times))
}

var errBadDay = errors.New("a bad day")

// fast retries at once.
func fast(int, error) time.Duration { return time.Millisecond }

// handleLater is handle for jobs of which some fail in their first attempt.
func (o *once) handleLater(ctx context.Context, job queue.Job[int]) error {
	if job.Attempt == 1 && job.ID[15]%5 == 0 {
		return errBadDay
	}
	return o.handle(ctx, job)
}
