package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/queue"
)

func discardsRetriesAndPurges(t *testing.T, d *env) {
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
	assert.Equal(t, queue.Dead, r.State)
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
	assert.Equal(t, 3, wait(t, done, "a job")+wait(t, done, "the other job"))
	d.empty(t)
	assert.Equal(t, 2, suite.Must(q.Purge(ctx, "q", 0))(t))
	assert.ErrorIs(t, q.Retry(ctx, made[0]), queue.ErrNoJob)
}

// A job that callers cancel and discard and that workers take ends once.
func oneOfManyEndsAJob(t *testing.T, d *env) {
	const jobs = 60
	q, ctx := d.open(t, queue.Options{}), t.Context()
	var did once
	handle(t, q, "note", did.handle)
	tasks := repeat(jobs, queue.Task{Kind: "note"})
	for i := range tasks {
		tasks[i].Delay = time.Duration(i%2) * time.Millisecond
	}
	made := enqueueMany(t, q, tasks)
	work(t, q, queue.WorkerOptions{Batch: 1, Concurrency: 1, Promote: 10 * time.Millisecond})
	var cancelled, discarded atomic.Int64
	suite.Crowd(4, func(n int) {
		for _, id := range made {
			if n%2 == 0 {
				switch was, err := q.Cancel(ctx, id); {
				case err != nil:
					assert.ErrorIs(t, err, queue.ErrNoJob, "cancel")
				case was == queue.Dead:
					discarded.Add(-1)
					fallthrough
				case was != queue.Claimed:
					cancelled.Add(1)
				}
			} else if err := q.Discard(ctx, id, "no more"); err == nil {
				discarded.Add(1)
			} else if !errors.Is(err, queue.ErrNoJob) {
				assert.ErrorIs(t, err, queue.ErrState, "discard")
			}
		}
	})
	d.empty(t)
	dead := d.count(t, "SELECT count(*) FROM dblock_queue_dead")
	assert.Equal(t, discarded.Load(), dead)
	assert.LessOrEqual(t, int64(did.done())+cancelled.Load()+dead, int64(jobs),
		"%d done, %d cancelled, %d dead", did.done(), cancelled.Load(), dead)
}

const manyDead = 1200 // more than one page of a list

func doomed(context.Context, queue.Job[int]) error { return queue.Discard(errBadDay) }

// die enqueues jobs that their handler discards, and waits until all are dead.
func (d *env) die(t *testing.T, q *queue.Queue, tasks []queue.Task) (stop func() error) {
	t.Helper()
	before := d.count(t, "SELECT count(*) FROM dblock_queue_dead")
	enqueueMany(t, q, tasks)
	stop = work(t, q, queue.WorkerOptions{})
	d.until(t, "SELECT count(*) FROM dblock_queue_dead", before+int64(len(tasks)))
	return stop
}

// Jobs die again as soon as they are retried. One call retries each once.
func retryAllEnds(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	handle(t, q, "note", doomed)
	d.die(t, q, repeat(manyDead, queue.Task{Kind: "note"}))
	assert.Equal(t, manyDead, suite.Must(q.RetryAll(suite.Soon(t), ""))(t))
}

// Dead jobs whose unique keys are taken hide no jobs that died before them. Of several dead jobs
// with one key the last one is retried.
func retryAllPassesTakenKeys(t *testing.T, d *env) {
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
func retryBesideAnOpenTransaction(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	handle(t, q, "note", doomed)
	tasks := repeat(3, queue.Task{Kind: "note"})
	tasks[1].Unique = "key"
	require.NoError(t, d.die(t, q, tasks)())
	var keyed queue.ID
	dead := suite.Must(q.List(t.Context(), queue.Filter{State: queue.Dead}))(t)
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
		return len(answer) > 0 || d.count(t, suite.RowWaits(d.e.Kind)) > 0
	})
	require.NoError(t, tx.Commit())
	assert.Contains(t, []error{dblock.ErrBusy, dblock.ErrConflict}, classOf(wait(t, answer, "the retry")))
	assert.ErrorIs(t, q.Retry(t.Context(), keyed), dblock.ErrConflict)
}

// classOf returns which class of dblock's errors an error has.
func classOf(err error) error {
	for _, class := range []error{dblock.ErrBusy, dblock.ErrUnavailable, dblock.ErrConflict} {
		if errors.Is(err, class) {
			return class
		}
	}
	return err
}

// Jobs end in each way. History says why a job was cancelled or discarded, and keeps the last end.
func historyKeepsReasons(t *testing.T, d *env) {
	q := d.open(t, queue.Options{History: 1})
	odd := errors.New("it's \\ 100 % \"gone\" – " + strings.Repeat("é", 600))
	for kind, err := range map[string]error{
		"does": nil, "drops": queue.Cancel(odd), "fails": odd,
		"discards": fmt.Errorf("order 7: %w", queue.Discard(odd)),
	} {
		handle(t, q, kind, func(context.Context, queue.Job[int]) error { return err })
	}
	waiting := enqueue(t, q, repeat(2, queue.Task{Kind: "drops", Queue: "waits"})...)
	cancel(t, q, waiting[0], queue.Ready)
	require.NoError(t, q.Discard(t.Context(), waiting[1], "no more"))
	require.NoError(t, q.Retry(t.Context(), waiting[1]))
	cancel(t, q, waiting[1], queue.Ready)
	made := enqueue(t, q, queue.Task{Kind: "does"}, queue.Task{Kind: "drops"}, queue.Task{Kind: "discards"},
		queue.Task{Kind: "fails", MaxAttempts: 1})
	work(t, q, queue.WorkerOptions{})
	d.empty(t)
	for _, id := range made[2:] {
		cancel(t, q, id, queue.Dead)
	}
	type end struct {
		state  queue.State
		reason string
	}
	cancelled := end{queue.Cancelled, queue.ErrCancelled.Error()}
	want := map[queue.ID]end{
		waiting[0]: cancelled, waiting[1]: cancelled,
		made[0]: {queue.Finished, ""},
		made[1]: {queue.Cancelled, odd.Error()},
		made[2]: {queue.GivenUp, "order 7: " + odd.Error()},
		made[3]: {queue.GivenUp, odd.Error()},
	}
	listed, shown := map[queue.ID]end{}, map[queue.ID]end{}
	for _, name := range []string{"default", "waits"} {
		for _, state := range []queue.State{queue.Finished, queue.Cancelled, queue.GivenUp} {
			for _, r := range suite.Must(q.List(t.Context(), queue.Filter{Queue: name, State: state}))(t) {
				listed[r.ID] = end{r.State, r.LastError}
			}
		}
	}
	for id := range want {
		r := suite.Must(q.Show(t.Context(), id))(t)
		shown[id] = end{r.State, r.LastError}
	}
	assert.Equal(t, want, listed)
	assert.Equal(t, want, shown)
}
