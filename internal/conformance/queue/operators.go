package queue

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/queue"
)

func nop(context.Context, queue.Job[int]) error { return nil }

// record sends the arguments of the jobs that run.
func record(to chan<- int) func(context.Context, queue.Job[int]) error {
	return func(_ context.Context, job queue.Job[int]) error {
		to <- job.Args
		return nil
	}
}

// process opens a Queue and runs its jobs of kind note.
func (d *env) process(
	t *testing.T, o queue.Options, wo queue.WorkerOptions, fn func(context.Context, queue.Job[int]) error,
) *queue.Queue {
	t.Helper()
	q := d.open(t, o)
	handle(t, q, "note", fn)
	work(t, q, wo)
	return q
}

// rests checks that no job of a paused queue runs before resume, and that jobs of another queue
// run.
func (d *env) rests(t *testing.T, q *queue.Queue, resume func()) {
	t.Helper()
	done := make(chan int, 10)
	handle(t, q, "note", record(done))
	work(t, q, queue.WorkerOptions{Poll: 10 * time.Millisecond})
	work(t, q, queue.WorkerOptions{Queue: "other"})
	enqueue(t, q, queue.Task{Kind: "note", Args: 1}, queue.Task{Kind: "note", Args: 2, Queue: "other"})
	assert.Equal(t, 2, wait(t, done, "the job of the other queue"))
	resume()
	assert.Equal(t, 1, wait(t, done, "the job of the queue that was paused"))
}

func aPausedQueueRests(t *testing.T, d *env) {
	d.exec(t, "INSERT INTO dblock_queue (queue, paused_at) VALUES ('default', CURRENT_TIMESTAMP), ('other', NULL)")
	d.rests(t, d.open(t, queue.Options{}), func() {
		d.exec(t, "UPDATE dblock_queue SET paused_at = NULL WHERE queue = 'default'")
	})
}

func pausesAndResumes(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	for range 2 { // a second call changes nothing
		require.NoError(t, q.Pause(t.Context(), ""))
	}
	s := suite.Must(q.Stats(t.Context()))(t)
	require.Len(t, s.Queues, 1)
	assert.Equal(t, "default", s.Queues[0].Queue)
	assert.GreaterOrEqual(t, s.Queues[0].Paused, time.Duration(0))
	d.rests(t, q, func() {
		for range 2 {
			require.NoError(t, q.Resume(t.Context(), "default"))
		}
	})
	assert.Zero(t, d.count(t, "SELECT count(*) FROM dblock_queue"), "rows of queues")
}

func countsJobs(t *testing.T, d *env) {
	metrics := make(chan queue.Stats, 100)
	q := d.open(t, queue.Options{Observer: queue.Observer{Stats: func(s queue.Stats) { metrics <- s }}})
	assert.Empty(t, suite.Must(q.Stats(t.Context()))(t).Queues)
	h := newHolder()
	handle(t, q, "hold", h.handle)
	work(t, q, queue.WorkerOptions{Queue: "b", Stats: 100 * time.Millisecond})
	enqueue(t, q, queue.Task{Kind: "hold", Queue: "b"})
	h.has(t, 1)
	enqueue(t, q, queue.Task{Kind: "x", Queue: "a"}, queue.Task{Kind: "x", Queue: "a", Priority: 7},
		queue.Task{Kind: "x", Queue: "a", Delay: time.Hour},
		queue.Task{Kind: "x", Queue: "only later", Delay: time.Hour})
	dead := enqueue(t, q, queue.Task{Kind: "x", Queue: "c"})[0]
	require.NoError(t, q.Discard(t.Context(), dead, "no more"))
	d.exec(t, "UPDATE dblock_queue_ready SET ready_at = ready_at - INTERVAL '2' HOUR WHERE priority = 7")
	s := suite.Must(q.Stats(t.Context()))(t)
	for i, of := range s.Queues {
		old := of.Oldest > 2*time.Hour && of.Oldest < 3*time.Hour
		assert.Equal(t, of.Ready > 0, old, "age of the oldest job: %v", of.Oldest)
		assert.Negative(t, of.Paused)
		s.Queues[i].Oldest, s.Queues[i].Paused = 0, 0
	}
	assert.Equal(t, []queue.QueueStats{
		{Queue: "a", Ready: 2, Scheduled: 1}, {Queue: "b", Claimed: 1}, {Queue: "c", Dead: 1},
		{Queue: "only later", Scheduled: 1},
	}, s.Queues)
	for range len(metrics) { // from before
		<-metrics
	}
	assert.NotEmpty(t, wait(t, metrics, "the metrics").Queues)
	h.end <- nil
}

// A queue has nearly as many priorities as there can be. The job that has waited longest has the
// highest one. Timeout is shorter than one round trip for each priority.
func countsJobsOfManyPriorities(t *testing.T, d *env) {
	const priorities = 60_000
	row := d.sql("('q', %d, '%032d')", "('q', %d, '%016d')")
	rows := make([]string, priorities)
	for i := range rows {
		rows[i] = fmt.Sprintf(row, i-priorities/2, i)
	}
	d.exec(t, "INSERT INTO dblock_queue_ready (queue, priority, job_id) VALUES "+strings.Join(rows, ", "),
		"UPDATE dblock_queue_ready SET ready_at = ready_at - INTERVAL '2' HOUR "+
			fmt.Sprint("WHERE priority = ", priorities/2-1))
	q := d.open(t, queue.Options{Timeout: 3 * time.Second})
	s := suite.Must(q.Stats(t.Context()))(t)
	require.Len(t, s.Queues, 1)
	assert.EqualValues(t, queue.MaxCounted, s.Queues[0].Ready)
	assert.GreaterOrEqual(t, s.Queues[0].Oldest, 2*time.Hour)
}

// A lock keeps reads from their answers.
func readsAreNeverUnknown(t *testing.T, d *env) {
	job := enqueue(t, d.open(t, queue.Options{}), queue.Task{Kind: "x"})[0]
	q, ctx := d.open(t, queue.Options{Timeout: 100 * time.Millisecond}), t.Context()
	conn := suite.Must(d.db.Conn(ctx))(t)
	defer func() { _ = conn.Close() }()
	for statement := range strings.SplitSeq(d.sql(
		"BEGIN; LOCK TABLE dblock_queue_job, dblock_queue_ready, dblock_queue_dead",
		"LOCK TABLES dblock_queue_job WRITE, dblock_queue_ready WRITE, dblock_queue_dead WRITE"), "; ") {
		suite.Must(conn.ExecContext(ctx, statement))(t)
	}
	for name, err := range map[string]error{
		"stats":     suite.Second(q.Stats(ctx)),
		"show":      suite.Second(q.Show(ctx, job)),
		"list":      suite.Second(q.List(ctx, queue.Filter{})),
		"list dead": suite.Second(q.List(ctx, queue.Filter{State: queue.Dead})),
		"retry all": suite.Second(q.RetryAll(ctx, "")),
	} {
		assert.Contains(t, []error{dblock.ErrBusy, dblock.ErrUnavailable}, classOf(err), "%s: %v", name, err)
	}
	suite.Must(conn.ExecContext(ctx, d.sql("ROLLBACK", "UNLOCK TABLES")))(t)
}

func listsAndShowsJobs(t *testing.T, d *env) {
	q, h := d.open(t, queue.Options{Label: "a test"}), newHolder()
	handle(t, q, "hold", h.handle)
	work(t, q, queue.WorkerOptions{Queue: "work"})
	made := enqueue(t, q, queue.Task{Kind: "hold", Queue: "work", Args: 1})
	h.has(t, 1)
	made = append(made, enqueue(t, q, queue.Task{Kind: "x", Args: 2}, queue.Task{Kind: "y", Args: 3, Delay: time.Hour},
		queue.Task{Kind: "z", Args: 4, Priority: -1}, queue.Task{Kind: "x", Args: 5})...)
	require.NoError(t, q.Discard(t.Context(), made[4], "no more"))
	for i, state := range []queue.State{queue.Claimed, queue.Ready, queue.Scheduled, queue.Ready, queue.Dead} {
		in, worker := "default", ""
		if state == queue.Claimed {
			in, worker = "work", "a test"
		}
		r := suite.Must(q.Show(t.Context(), made[i]))(t)
		assert.Equal(t, made[i], r.ID)
		assert.Equal(t, []any{in, state, worker, fmt.Sprint(i + 1), 25},
			[]any{r.Queue, r.State, r.Worker, string(r.Payload), r.MaxAttempts})
		assert.False(t, r.At.IsZero())
		found := false
		for _, l := range suite.Must(q.List(t.Context(), queue.Filter{Queue: in, State: state}))(t) {
			if l.ID == made[i] {
				found = true
				l.Payload = r.Payload
				assert.Equal(t, fmt.Sprint(r), fmt.Sprint(l), "as shown, and as listed")
			}
		}
		assert.True(t, found, "listed: a %v job", state)
	}
	first := suite.Must(q.List(t.Context(), queue.Filter{Limit: 1}))(t)
	require.Len(t, first, 1)
	assert.Equal(t, made[3], first[0].ID, "the first job")
	h.end <- nil
}

func cancelsWhatWaits(t *testing.T, d *env) {
	q := d.open(t, queue.Options{History: 1})
	made := enqueue(t, q, queue.Task{Kind: "x"}, queue.Task{Kind: "x", Delay: time.Hour}, queue.Task{Kind: "x"})
	require.NoError(t, q.Discard(t.Context(), made[2], "no more"))
	for i, state := range []queue.State{queue.Ready, queue.Scheduled, queue.Dead} {
		cancel(t, q, made[i], state)
		assert.ErrorIs(t, suite.Second(q.Cancel(t.Context(), made[i])), queue.ErrNoJob)
	}
	d.empty(t)
	d.rows(t, "dead", 0)
	assert.Len(t, suite.Must(q.List(t.Context(), queue.Filter{State: queue.Cancelled}))(t), 2)
}

// A job is blocked in a group without a row. Cancel writes none.
func cancelOfBlockedJobs(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	blocked := enqueue(t, q, queue.Task{Kind: "x", Delay: time.Hour})[0]
	d.exec(t, "UPDATE dblock_queue_job SET group_key = 'g'",
		"INSERT INTO dblock_queue_blocked (queue, group_key, seq, job_id, priority) "+
			"SELECT queue, 'g', 1, job_id, priority FROM dblock_queue_job",
		"DELETE FROM dblock_queue_scheduled")
	s := suite.Must(q.Stats(t.Context()))(t)
	require.Len(t, s.Queues, 1)
	assert.EqualValues(t, 1, s.Queues[0].Blocked)
	all := suite.Must(q.List(t.Context(), queue.Filter{State: queue.Blocked}))(t)
	require.Len(t, all, 1)
	assert.Equal(t, blocked, all[0].ID)
	cancel(t, q, blocked, queue.Blocked)
	d.empty(t)
}

// A running job learns of its cancellation from its context, and a job that has not begun never
// begins. A job that ignores its context is done.
func cancelsWhatRuns(t *testing.T, d *env) {
	dropped := make(drops, 10)
	q, other := d.open(t, queue.Options{Observer: dropped.observer(t)}), d.open(t, queue.Options{})
	began, causes := make(chan queue.ID, 10), make(chan error, 10)
	handle(t, q, "fast", nop)
	handle(t, q, "note", func(ctx context.Context, job queue.Job[int]) error {
		began <- job.ID
		<-ctx.Done()
		causes <- context.Cause(ctx)
		if job.Args == 1 {
			return nil
		}
		return ctx.Err()
	})
	work(t, q, queue.WorkerOptions{Concurrency: 1, Ahead: 10, Exchanges: 1})
	enqueueMany(t, q, repeat(300, queue.Task{Kind: "fast"})) // a worker that is fast claims ahead
	d.empty(t)
	made := enqueueMany(t, q, repeat(3, queue.Task{Kind: "note"}))
	told := made[:1:1]
	for i, id := range made[:2] {
		require.Equal(t, id, wait(t, began, "the job"))
		if i == 0 { // the job that has not begun
			was := suite.Must(other.Cancel(t.Context(), made[2]))(t)
			t.Logf("the job that has not begun was %v", was)
			if was == queue.Claimed {
				told = append(told, made[2])
			}
		}
		cancel(t, other, id, queue.Claimed)
		assert.ErrorIs(t, wait(t, causes, "the end of the context"), queue.ErrCancelled)
	}
	d.empty(t)
	dropped.of(t, told, "note")
	d.until(t, "SELECT count(*) FROM dblock_queue_cancel", 0)
	d.rows(t, "dead", 0)
	assert.Empty(t, began)
}
