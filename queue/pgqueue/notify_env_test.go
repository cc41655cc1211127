package pgqueue_test

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/queue"
)

// notifyEnv is a database with dblock's tables, for the tests of notifications.
type notifyEnv struct{ *suite.DB }

// open makes a Queue as a process of its own would have it.
func (d *notifyEnv) open(t *testing.T, o queue.Options) *queue.Queue {
	t.Helper()
	q, closePool, err := open(t.Context(), d.DSN, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		closeQueue(t, q)
		closePool()
	})
	return q
}

func closeQueue(t *testing.T, q *queue.Queue) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	require.NoError(t, q.Close(ctx), "close")
}

// process opens a Queue and runs its jobs of kind note.
func (d *notifyEnv) process(t *testing.T, o queue.Options, fn func(context.Context, queue.Job[int]) error) *queue.Queue {
	t.Helper()
	q := d.open(t, o)
	require.NoError(t, queue.Handle(q, "note", fn))
	work(t, q, rarely)
	return q
}

// worker is process for a Queue that listens or has PollOnly. It has claimed once.
func (d *notifyEnv) worker(t *testing.T, o queue.Options, done chan<- int) {
	t.Helper()
	asked := make(chan int, 10_000)
	o.Observer.Claimed = func(_ string, jobs int, _ time.Duration) { asked <- jobs }
	d.process(t, o, record(done))
	if !o.PollOnly {
		d.Until(t, countListeners, 1)
	}
	suite.Wait(t, asked, "the first claim")
}

// record is a handler that sends the arguments of its jobs.
func record(to chan<- int) func(context.Context, queue.Job[int]) error {
	return func(_ context.Context, job queue.Job[int]) error {
		to <- job.Args
		return nil
	}
}

// work runs a worker until stop is called, which returns what Work does.
func work(t *testing.T, q *queue.Queue, o queue.WorkerOptions) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- q.Work(ctx, o) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { _ = stop() })
	return stop
}

func enqueue(t *testing.T, q *queue.Queue, task queue.Task) queue.ID {
	t.Helper()
	return suite.Must(q.Enqueue(suite.Soon(t), task))(t)
}

// enqueueTx enqueues in a transaction, which end ends.
func (d *notifyEnv) enqueueTx(t *testing.T, q *queue.Queue, end func(*sql.Tx) error, tasks ...queue.Task) {
	t.Helper()
	tx := d.Tx(t, sql.LevelDefault)
	suite.Must(enqueueTx(t.Context(), q, tx, tasks...))(t)
	require.NoError(t, end(tx))
}

// unpolled waits for a job that no poll finds.
func unpolled(t *testing.T, done <-chan int) (args int) {
	t.Helper()
	select {
	case args = <-done:
	case <-time.After(25 * time.Second):
		require.Fail(t, "no job")
	}
	return args
}

// empty waits until nothing is left of any job.
func (d *notifyEnv) empty(t *testing.T) {
	t.Helper()
	for _, table := range []string{"job", "ready", "scheduled", "claim", "unique", "key", "blocked"} {
		d.Until(t, "SELECT count(*) FROM dblock_queue_"+table, 0)
	}
}

// once counts how often each job was done.
type once struct {
	mu    sync.Mutex
	times map[queue.ID]int
}

func (o *once) did(id queue.ID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.times[id]++
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
	assert.Equal(t, want, o.times, "how often each job was done")
}
