package queue

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/queue"
)

// cancelAll cancels jobs that a worker has.
func cancelAll(t *testing.T, q *queue.Queue, jobs []queue.ID) {
	t.Helper()
	for _, id := range jobs {
		cancel(t, q, id, queue.JobClaimed)
	}
}

// cancelled asserts that n jobs have ended as cancelled, and no other job has ended.
func (d *env) cancelled(t *testing.T, jobs int) {
	t.Helper()
	d.empty(t)
	d.rows(t, "history WHERE outcome = 2", jobs)
	d.rows(t, "history WHERE outcome <> 2", 0)
	d.rows(t, "dead", 0)
}

// drops are the jobs that an observer reports as dropped because Cancel was called.
type drops chan queue.Info

func (c drops) observer(t *testing.T) queue.Observer {
	return queue.Observer{Cancelled: func(job queue.Info, err error) {
		assert.ErrorIs(t, err, queue.ErrCancelled)
		c <- job
	}}
}

// of asserts that observers were called for each of some jobs once, and for no others.
func (c drops) of(t *testing.T, jobs []queue.ID, kinds ...string) {
	t.Helper()
	var heard []queue.ID
	for range jobs {
		job := suite.Wait(t, c, "dropped job")
		heard = append(heard, job.ID)
		assert.Equal(t, queue.DefaultQueue, job.Queue)
		assert.Equal(t, 1, job.Attempt)
		assert.Contains(t, kinds, job.Kind)
		assert.NotZero(t, job.MaxAttempts)
		assert.WithinDuration(t, time.Now(), job.EnqueuedAt, time.Hour)
	}
	assert.ElementsMatch(t, jobs, heard)
	assert.Empty(t, c)
}

// keyed are tasks of each kind of key.
func keyed(kind string) []queue.Task {
	tasks := repeat(9, queue.Task{Kind: kind})
	for i := range tasks {
		switch key := fmt.Sprint(kind, i); i % 3 {
		case 1:
			tasks[i].Unique = key
		case 2:
			tasks[i].Group = key
		}
	}
	return tasks
}

// Jobs that end, in whichever way, before their worker has learned that they are cancelled, never
// begin again. So it is with jobs that a worker hands back as it ends.
func (mainTests) CancelsForGood(t *testing.T, d *env) {
	dropped := make(drops, 1000)
	q := d.open(t, queue.Options{PollOnly: true, History: 1, Observer: dropped.observer(t)})
	other := d.open(t, queue.Options{PollOnly: true, History: 1})
	held, back := newHolder(t), newHolder(t)
	tasks := keyed("back")
	handle(t, q, "back", func(ctx context.Context, job queue.Job[int]) error { return back.obey(ctx, job) })
	for kind, err := range map[string]error{
		"fails": errBadDay, "snoozes": queue.Snooze(time.Millisecond), "discards": queue.Discard(errBadDay),
		"stays": context.Canceled,
	} {
		handle(t, q, kind, func(ctx context.Context, job queue.Job[int]) error {
			_ = held.handle(ctx, job)
			return err
		})
		tasks = append(tasks, keyed(kind)...)
	}
	made := enqueue(t, other, tasks...)
	stop := work(t, q, queue.WorkerOptions{Backoff: fast, Promote: 10 * time.Millisecond, Grace: -1})
	back.has(t, 9)
	held.has(t, 36)
	cancelAll(t, other, made[9:])
	close(held.end)
	dropped.of(t, made[9:], "fails", "snoozes", "discards", "stays")
	d.Until(t, "SELECT count(*) FROM dblock_queue_cancel", 0)
	cancelAll(t, other, made[:9])
	assert.NoError(t, stop())
	d.cancelled(t, len(made))
	assert.Empty(t, held.began, "jobs began again")
}

// So it is with jobs whose process dies, before it has learned of it or after that.
func (mainTests) CancelsWhatIsRescued(t *testing.T, d *env) {
	dropped := make(drops, 1000)
	other := d.open(t, queue.Options{PollOnly: true, History: 1, Observer: dropped.observer(t)})
	tasks := keyed("note")
	for i := range tasks[:3] {
		tasks[i].MaxAttempts = 1
	}
	made := d.killed(t, other, tasks...)
	cancelAll(t, other, made)
	rescue(t, other, 0, 0)
	d.cancelled(t, len(made))
	dropped.of(t, made, "note")

	q := d.open(t, queue.Options{PollOnly: true})
	causes, held, stays := make(chan error, 100), newHolder(t), newHolder(t)
	handle(t, q, "note", func(ctx context.Context, job queue.Job[int]) error {
		causes <- held.obey(ctx, job)
		_ = stays.handle(ctx, job)
		return ctx.Err()
	})
	more := enqueue(t, other, keyed("note")...)
	work(t, q, queue.WorkerOptions{Rescue: -1, Promote: -1})
	held.has(t, len(more))
	cancelAll(t, other, more)
	for range more {
		assert.ErrorIs(t, suite.Wait(t, causes, "end of the context"), queue.ErrCancelled)
	}
	d.evict(t)
	rescue(t, other, 0, 0)
	d.cancelled(t, len(made)+len(more))
	dropped.of(t, more, "note")
	close(stays.end)
}

// A request and the end of an attempt meet. If the end has the claim, the request waits for it, and
// finds the job where it is then. If the request has the claim, the end waits for it.
func (mainTests) CancelsWhatIsEnding(t *testing.T, d *env) {
	q := d.open(t, queue.Options{PollOnly: true, History: 1, Timeout: time.Minute})
	other := d.open(t, queue.Options{PollOnly: true, History: 1, Timeout: time.Minute})
	held := newHolder(t)
	handle(t, q, "note", held.handle)
	work(t, q, queue.WorkerOptions{Promote: -1, Backoff: func(int, error) time.Duration { return time.Hour }})
	for i, lock := range []string{
		d.sql("SELECT job_id FROM dblock_queue_job FOR UPDATE",
			"SELECT job_id FROM dblock_queue_scheduled FOR UPDATE"), // there an end waits for no row of a job, but for a gap
		`INSERT INTO dblock_queue_cancel (member_id, job_id)
			SELECT m.member_id, j.job_id FROM dblock_member m CROSS JOIN dblock_queue_job j`,
	} {
		id := enqueue(t, other, queue.Task{Kind: "note", Args: i})[0]
		held.has(t, 1)
		tx := d.openTx(t)
		suite.Must(tx.ExecContext(t.Context(), lock))(t)
		asked := make(chan error, 1)
		steps := []func(){
			func() { held.end <- errBadDay },
			func() { go func() { asked <- suite.Second(other.Cancel(suite.Soon(t), id)) }() },
		}
		steps[i]()
		d.untilWaiting(t, 1, func() bool { return false })
		steps[1-i]()
		d.untilWaiting(t, 2, func() bool {
			return len(asked) > 0 || d.Count(t, "SELECT count(*) FROM dblock_queue_scheduled") > 0
		})
		require.NoError(t, tx.Rollback())
		assert.NoError(t, suite.Wait(t, asked, "answer to the request"), lock)
		d.cancelled(t, i+1)
	}
}

// untilWaiting waits until so many statements wait for locks, or something else is.
func (d *env) untilWaiting(t *testing.T, n int64, or func() bool) {
	t.Helper()
	suite.Until(t, "statements wait for locks", func() bool {
		time.Sleep(150 * time.Millisecond) // what is read more often than every 100 ms, InnoDB does not bring up to date
		return d.Count(t, suite.RowWaits(d.Kind)) >= n || or()
	})
}
