package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
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
func (d *env) process(t *testing.T, o queue.Options, wo queue.WorkerOptions, fn func(context.Context, queue.Job[int]) error) *queue.Queue {
	t.Helper()
	q := d.open(t, o)
	handle(t, q, "note", fn)
	work(t, q, wo)
	return q
}

// No job of a paused queue runs before it is resumed, and jobs of another queue run. A second call
// changes nothing.
func (mainTests) PausesAndResumes(t *testing.T, d *env) {
	q, done := d.open(t, queue.Options{}), make(chan int, 10)
	for range 2 {
		require.NoError(t, q.Pause(t.Context(), ""))
	}
	s := suite.Must(q.Stats(t.Context()))(t)
	require.Len(t, s.Queues, 1)
	assert.Equal(t, "default", s.Queues[0].Queue)
	assert.GreaterOrEqual(t, s.Queues[0].Paused, time.Duration(0))
	handle(t, q, "note", record(done))
	work(t, q, queue.WorkerOptions{Poll: 10 * time.Millisecond})
	work(t, q, queue.WorkerOptions{Queue: "other"})
	enqueue(t, q, queue.Task{Kind: "note", Args: 1}, queue.Task{Kind: "note", Args: 2, Queue: "other"})
	assert.Equal(t, 2, suite.Wait(t, done, "the job of the other queue"))
	for range 2 {
		require.NoError(t, q.Resume(t.Context(), "default"))
	}
	assert.Equal(t, 1, suite.Wait(t, done, "the job of the queue that was paused"))
	assert.Zero(t, d.Count(t, "SELECT count(*) FROM dblock_queue"), "rows of queues")
}

func (mainTests) CountsJobs(t *testing.T, d *env) {
	metrics := make(chan queue.Stats, 100)
	q := d.open(t, queue.Options{Observer: queue.Observer{Stats: func(s queue.Stats) { metrics <- s }}})
	assert.Empty(t, suite.Must(q.Stats(t.Context()))(t).Queues)
	h := newHolder(t)
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
	assert.NotEmpty(t, suite.Wait(t, metrics, "the metrics").Queues)
	h.end <- nil
}

// A queue has nearly as many priorities as there can be. The job that has waited longest has the
// highest one. A count takes few round trips, and not one for each priority.
func (mainTests) CountsJobsOfManyPriorities(t *testing.T, d *env) {
	const priorities = 60_000
	row := d.sql("('q', %d, '%032d')", "('q', %d, '%016d')")
	rows := make([]string, priorities)
	for i := range rows {
		rows[i] = fmt.Sprintf(row, i-priorities/2, i)
	}
	d.exec(t, "INSERT INTO dblock_queue_ready (queue, priority, job_id) VALUES "+strings.Join(rows, ", "),
		"UPDATE dblock_queue_ready SET ready_at = ready_at - INTERVAL '2' HOUR "+
			fmt.Sprint("WHERE priority = ", priorities/2-1))
	dialer := new(faultconn.Dialer)
	q := d.openOn(t, dialer, queue.Options{Timeout: time.Minute})
	dialer.Arm(0, 0, nil)
	s := suite.Must(q.Stats(t.Context()))(t)
	assert.Less(t, dialer.Writes(), priorities/100, "round trips")
	require.Len(t, s.Queues, 1)
	assert.EqualValues(t, queue.MaxCounted, s.Queues[0].Ready)
	assert.GreaterOrEqual(t, s.Queues[0].Oldest, 2*time.Hour)
}

// A lock keeps reads from their answers.
func (mainTests) ReadsAreNeverUnknown(t *testing.T, d *env) {
	job := enqueue(t, d.open(t, queue.Options{}), queue.Task{Kind: "x"})[0]
	q, ctx := d.open(t, queue.Options{Timeout: 100 * time.Millisecond}), t.Context()
	defer d.LockTables(t, "dblock_queue_job", "dblock_queue_ready", "dblock_queue_dead")()
	for name, err := range map[string]error{
		"stats":     suite.Second(q.Stats(ctx)),
		"show":      suite.Second(q.Show(ctx, job)),
		"list":      suite.Second(q.List(ctx, queue.Filter{})),
		"list dead": suite.Second(q.List(ctx, queue.Filter{State: queue.JobDead})),
		"retry all": suite.Second(q.RetryAll(ctx, "")),
	} {
		assert.Contains(t, []error{dblock.ErrBusy, dblock.ErrUnavailable}, classOf(err), "%s: %v", name, err)
	}
}

func (mainTests) ListsAndShowsJobs(t *testing.T, d *env) {
	q, h := d.open(t, queue.Options{Label: "a test"}), newHolder(t)
	handle(t, q, "hold", h.handle)
	work(t, q, queue.WorkerOptions{Queue: "work"})
	made := enqueue(t, q, queue.Task{Kind: "hold", Queue: "work", Args: 1})
	h.has(t, 1)
	made = append(made, enqueue(t, q, queue.Task{Kind: "x", Args: 2}, queue.Task{Kind: "y", Args: 3, Delay: time.Hour},
		queue.Task{Kind: "z", Args: 4, Priority: -1}, queue.Task{Kind: "x", Args: 5})...)
	require.NoError(t, q.Discard(t.Context(), made[4], "no more"))
	for i, state := range []queue.JobState{queue.JobClaimed, queue.JobReady, queue.JobScheduled, queue.JobReady, queue.JobDead} {
		in, worker := "default", ""
		if state == queue.JobClaimed {
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

// A job is blocked in a group without a row. Cancel writes none.
func (mainTests) CancelOfBlockedJobs(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	blocked := enqueue(t, q, queue.Task{Kind: "x", Delay: time.Hour})[0]
	d.exec(t, "UPDATE dblock_queue_job SET group_key = 'g'",
		"INSERT INTO dblock_queue_blocked (queue, group_key, seq, job_id, priority) "+
			"SELECT queue, 'g', 1, job_id, priority FROM dblock_queue_job",
		"DELETE FROM dblock_queue_scheduled")
	s := suite.Must(q.Stats(t.Context()))(t)
	require.Len(t, s.Queues, 1)
	assert.EqualValues(t, 1, s.Queues[0].Blocked)
	all := suite.Must(q.List(t.Context(), queue.Filter{State: queue.JobBlocked}))(t)
	require.Len(t, all, 1)
	assert.Equal(t, blocked, all[0].ID)
	cancel(t, q, blocked, queue.JobBlocked)
	d.empty(t)
}

// A running job learns of its cancellation from its context, and a job that has not begun never
// begins. A job that ignores its context is done.
func (mainTests) CancelsWhatRuns(t *testing.T, d *env) {
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
	work(t, q, queue.WorkerOptions{Concurrency: 1, Ahead: 10, Syncs: 1})
	enqueueMany(t, q, repeat(300, queue.Task{Kind: "fast"})) // a worker that is fast claims ahead
	d.empty(t)
	made := enqueueMany(t, q, repeat(3, queue.Task{Kind: "note"}))
	told := made[:1:1]
	for i, id := range made[:2] {
		require.Equal(t, id, suite.Wait(t, began, "the job"))
		if i == 0 { // the job that has not begun
			was := suite.Must(other.Cancel(t.Context(), made[2]))(t)
			t.Logf("the job that has not begun was %v", was)
			if was == queue.JobClaimed {
				told = append(told, made[2])
			}
		}
		cancel(t, other, id, queue.JobClaimed)
		assert.ErrorIs(t, suite.Wait(t, causes, "the end of the context"), queue.ErrCancelled)
	}
	d.empty(t)
	dropped.of(t, told, "note")
	d.Until(t, "SELECT count(*) FROM dblock_queue_cancel", 0)
	d.rows(t, "dead", 0)
	assert.Empty(t, began)
}

func (mainTests) DiscardsRetriesAndPurges(t *testing.T, d *env) {
	q, ctx := d.open(t, queue.Options{}), t.Context()
	made := enqueue(t, q, queue.Task{Kind: "note", Args: 1, Queue: "q"},
		queue.Task{Kind: "note", Args: 2, Queue: "q", Delay: time.Hour})
	for _, id := range made {
		assert.ErrorIs(t, q.Retry(ctx, id), queue.ErrState, "it is not dead")
		require.NoError(t, q.Discard(ctx, id, "no\x00 more"))
		assert.ErrorIs(t, q.Discard(ctx, id, "once more"), queue.ErrState)
	}
	d.empty(t)
	r := suite.Must(q.Show(ctx, made[0]))(t)
	assert.Contains(t, r.LastError, "more")
	assert.Equal(t, queue.JobDead, r.State)
	assert.Zero(t, suite.Must(q.Purge(ctx, "q", time.Hour))(t), "jobs that died an hour ago")
	require.NoError(t, q.Retry(ctx, made[0]))
	assert.Equal(t, 1, suite.Must(q.RetryAll(ctx, "q"))(t))
	done := make(chan int, 10)
	handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
		assert.Equal(t, []int{1, 25}, []int{job.Attempt, job.MaxAttempts})
		done <- job.Args
		return queue.Discard(errBadDay)
	})
	work(t, q, queue.WorkerOptions{Queue: "q"})
	assert.Equal(t, 3, suite.Wait(t, done, "a job")+suite.Wait(t, done, "the other job"))
	d.empty(t)
	assert.Equal(t, 2, suite.Must(q.Purge(ctx, "q", 0))(t))
	assert.ErrorIs(t, q.Retry(ctx, made[0]), queue.ErrNoJob)
	assert.ErrorIs(t, q.Discard(ctx, made[0], "x"), queue.ErrNoJob)
}

const manyDead = 1200 // more than one page of a list

func doomed(context.Context, queue.Job[int]) error { return queue.Discard(errBadDay) }

// die enqueues jobs that their handler discards, and waits until all are dead.
func (d *env) die(t *testing.T, q *queue.Queue, tasks []queue.Task) (stop func() error) {
	t.Helper()
	before := d.Count(t, "SELECT count(*) FROM dblock_queue_dead")
	enqueueMany(t, q, tasks)
	stop = work(t, q, queue.WorkerOptions{})
	d.Until(t, "SELECT count(*) FROM dblock_queue_dead", before+int64(len(tasks)))
	return stop
}

// Jobs die again as soon as they are retried. One call retries each once.
func (mainTests) RetryAllEnds(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	handle(t, q, "note", doomed)
	d.die(t, q, repeat(manyDead, queue.Task{Kind: "note"}))
	assert.Equal(t, manyDead, suite.Must(q.RetryAll(suite.Soon(t), ""))(t))
}

// Dead jobs whose unique keys are taken hide no jobs that died before them. Of several dead jobs
// with one key the last one is retried.
func (mainTests) RetryAllPassesTakenKeys(t *testing.T, d *env) {
	const free = 5
	q := d.open(t, queue.Options{})
	handle(t, q, "note", doomed)
	frees := repeat(free, queue.Task{Kind: "note"})
	for i := 1; i < free; i++ {
		frees[i].Group = fmt.Sprint(i % 3)
		if i > 1 {
			frees[i].Unique = fmt.Sprint("free ", i%2)
		}
	}
	for i := range frees { // one after the other, so that their keys are free again
		require.NoError(t, d.die(t, q, frees[i:i+1])())
	}
	taken := repeat(manyDead, queue.Task{Kind: "note"})
	for i := range taken {
		taken[i].Unique = fmt.Sprint(i)
	}
	require.NoError(t, d.die(t, q, taken)())
	enqueueMany(t, q, taken)
	assert.Equal(t, free-1, suite.Must(q.RetryAll(suite.Soon(t), ""))(t))
	d.rows(t, "dead", manyDead+1)
	d.process(t, queue.Options{}, queue.WorkerOptions{}, nop)
	d.empty(t)
}

// An open transaction has enqueued with the unique key of a dead job. Other dead jobs are retried.
// After its commit the key is another job's.
func (mainTests) RetryBesideAnOpenTransaction(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	handle(t, q, "note", doomed)
	tasks := repeat(3, queue.Task{Kind: "note"})
	tasks[1].Unique = "key"
	require.NoError(t, d.die(t, q, tasks)())
	var keyed queue.ID
	dead := suite.Must(q.List(t.Context(), queue.Filter{State: queue.JobDead}))(t)
	require.Len(t, dead, 3)
	for _, r := range dead {
		if suite.Must(q.Show(t.Context(), r.ID))(t).UniqueKey != "" {
			keyed = r.ID
		}
	}
	tx, _ := d.beginWith(t, q, queue.Task{Kind: "note", Args: 4, Unique: "key"})
	assert.Equal(t, 2, suite.Must(q.RetryAll(suite.Soon(t), ""))(t), "beside the transaction")
	answer := make(chan error, 1)
	go func() { answer <- q.Retry(suite.Soon(t), keyed) }()
	suite.Until(t, "the retry waits for the transaction, or does not", func() bool {
		time.Sleep(150 * time.Millisecond) // InnoDB's tables are as of the last 100 ms
		return len(answer) > 0 || d.Count(t, suite.RowWaits(d.Kind)) > 0
	})
	require.NoError(t, tx.Commit())
	assert.Contains(t, []error{dblock.ErrBusy, queue.ErrDuplicate}, classOf(suite.Wait(t, answer, "the retry")))
	assert.ErrorIs(t, q.Retry(t.Context(), keyed), queue.ErrDuplicate)
}

// classOf returns which class of dblock's errors an error has.
func classOf(err error) error {
	for _, class := range []error{dblock.ErrBusy, dblock.ErrUnavailable, queue.ErrDuplicate} {
		if errors.Is(err, class) {
			return class
		}
	}
	return err
}

// A process with PollOnly learns of other processes' jobs when it polls, and of its own at once.
func (mainTests) PollOnlyIsToldOfNothing(t *testing.T, d *env) {
	quiet, loud := make(chan int, 21), make(chan int, 10)
	worker := func(o queue.Options, wo queue.WorkerOptions, done chan<- int) *queue.Queue { // it has claimed once
		asked := make(chan int, 10_000)
		o.Observer.Claimed = func(_ string, jobs int, _ time.Duration) { asked <- jobs }
		q := d.process(t, o, wo, record(done))
		suite.Wait(t, asked, "the first claim")
		return q
	}
	q := worker(queue.Options{PollOnly: true}, queue.WorkerOptions{Poll: time.Minute, Queue: "quiet", Promote: -1, Rescue: -1}, quiet)
	worker(queue.Options{}, queue.WorkerOptions{Poll: 50 * time.Millisecond, Promote: -1, Rescue: -1}, loud)
	if d.Postgres() { // the second one alone
		d.Until(t, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'listen \"dblock_queue%'", 1)
	}
	other := d.open(t, queue.Options{})
	for range 10 {
		enqueue(t, other, queue.Task{Kind: "note", Queue: "quiet"})
		d.enqueueTx(t, other, queue.Task{Kind: "note", Queue: "quiet"})
		enqueue(t, other, queue.Task{Kind: "note"})
		suite.Wait(t, loud, "a job that others were notified of, or polled for")
	}
	d.rows(t, "ready", 20)
	enqueue(t, q, queue.Task{Kind: "note", Queue: "quiet"})
	late := time.After(25 * time.Second) // before the next poll, which is half a minute away at least
	for range 21 {
		select {
		case <-quiet:
		case <-late:
			require.Fail(t, "no job")
		}
	}
}
