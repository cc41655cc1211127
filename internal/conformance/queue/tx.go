package queue

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/queue"
)

// HandlerTx is a transaction of HandleTx, of whatever driver.
type HandlerTx interface {
	Do(ctx context.Context, statement string) error
	Enqueue(ctx context.Context, tasks ...queue.Task) ([]queue.ID, error)
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// TxHandler is a handler whose effects are in its transaction.
type TxHandler func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error

func handleTx(t *testing.T, d *env, q *queue.Queue, kind string, fn TxHandler, opts ...queue.HandlerOption) {
	t.Helper()
	require.NoError(t, d.e.HandleTx(q, kind, fn, opts...))
}

// handleEffect registers a handler that writes the effect of its job, and then does what then does.
func (d *env) handleEffect(t *testing.T, q *queue.Queue, then TxHandler, opts ...queue.HandlerOption) {
	t.Helper()
	d.effects(t)
	handleTx(t, d, q, "effect", func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
		if err := tx.Do(ctx, effectOf(job.Info)); err != nil {
			return err
		}
		return then(ctx, tx, job)
	}, opts...)
}

// runEffects opens a process that runs the jobs of handleEffect.
func (d *env) runEffects(t *testing.T, o queue.Options, wo queue.WorkerOptions, then TxHandler) *queue.Queue {
	t.Helper()
	q := d.open(t, o)
	d.handleEffect(t, q, then)
	work(t, q, wo)
	return q
}

func noMore(context.Context, HandlerTx, queue.Job[int]) error { return nil }

// ignoreTx waits until the test ends the job or its context ends, and returns nil.
func (h *holder) ignoreTx(ctx context.Context, _ HandlerTx, job queue.Job[int]) error {
	_ = h.obey(ctx, job)
	return nil
}

// effectOf is the effect of a job: a row, which may exist twice.
func effectOf(job queue.Info) string {
	return fmt.Sprintf("INSERT INTO suite_effect (job, attempt) VALUES ('%v', %d)", job.ID, job.Attempt)
}

const countEffects = "SELECT count(*) FROM suite_effect"

// effects makes the table.
func (d *env) effects(t *testing.T) {
	t.Helper()
	d.exec(t, "CREATE TABLE IF NOT EXISTS suite_effect (job CHAR(36) NOT NULL, attempt INT NOT NULL)")
}

// effective waits for the end of all jobs. Each of some jobs has had its effect once, and no other
// job any.
func (d *env) effective(t *testing.T, jobs ...queue.ID) {
	t.Helper()
	d.empty(t)
	var want []string
	for _, id := range jobs {
		want = append(want, id.String())
	}
	got := suite.ValuesOf[string](t, d.DB, "SELECT job FROM suite_effect")
	assert.ElementsMatch(t, want, got, "effects")
}

// observeDead sends the error of each job that dies.
func observeDead() (queue.Options, <-chan error) {
	dead := make(chan error, 100)
	return queue.Options{Observer: queue.Observer{Discarded: func(_ queue.Info, err error) { dead <- err }}}, dead
}

// quickly is a worker that promotes and polls often.
var quickly = queue.WorkerOptions{
	Backoff: fast, Promote: 10 * time.Millisecond, Poll: 10 * time.Millisecond, Concurrency: 4,
}

// The end frees unique keys and admits the next job of the group, also if the job has enqueued it.
func (mainTests) EffectsInGroups(t *testing.T, d *env) {
	ended := make(chan queue.Job[int], 10)
	then := func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
		if job.Args == 1 {
			if _, err := tx.Enqueue(ctx, queue.Task{Kind: "effect", Args: 5, Group: "g", Unique: "5"}); err != nil {
				return err
			}
		}
		if job.Attempt == 1 && job.Args%2 == 1 {
			return errBadDay
		}
		ended <- job
		return nil
	}
	tasks := repeat(5, queue.Task{Kind: "effect", Group: "g"})
	for n := range tasks {
		tasks[n].Unique = fmt.Sprint(n)
	}
	enqueue(t, d.open(t, queue.Options{}), tasks...)
	q := d.runEffects(t, queue.Options{}, quickly, then)
	var ids []queue.ID
	for n := range 6 {
		job := suite.Wait(t, ended, "a job")
		assert.Equal(t, n, job.Args)
		ids = append(ids, job.ID)
	}
	d.effective(t, ids...)
	enqueue(t, q, queue.Task{Kind: "effect", Args: 7, Group: "g", Unique: "0"})
	d.empty(t)
}

// The middleware swaps successes and failures, and hides a panic. The panic has no effect.
func (mainTests) EffectsAndMiddleware(t *testing.T, d *env) {
	wo := quickly
	wo.Middleware = []queue.Middleware{func(ctx context.Context, job queue.Info, next queue.Next) (err error) {
		defer func() {
			if recover() != nil {
				err = nil
			}
		}()
		if err := next(ctx); err != nil || job.Attempt > 1 {
			return err
		}
		return errBadDay
	}}
	q := d.runEffects(t, queue.Options{}, wo, func(_ context.Context, _ HandlerTx, job queue.Job[int]) error {
		if job.Args == 1 {
			panic(errBadDay)
		}
		return nil
	})
	made := enqueue(t, q, repeat(2, queue.Task{Kind: "effect"})...)
	d.effective(t, made[0])
	assert.EqualValues(t, 2, d.Count(t, "SELECT attempt FROM suite_effect"))
}

// The middleware returns before the handler. The job ends after the handler, without effect.
func (mainTests) EffectsAndImpatientMiddleware(t *testing.T, d *env) {
	wo := quickly
	left, handled := make(chan struct{}), new(atomic.Bool)
	wo.Middleware = []queue.Middleware{func(ctx context.Context, _ queue.Info, next queue.Next) error {
		begun := make(chan struct{})
		go func() { _ = next(context.WithValue(ctx, left, begun)) }()
		<-begun
		close(left)
		return errBadDay
	}}
	o, dead := observeDead()
	buried := o.Observer.Discarded
	o.Observer.Discarded = func(info queue.Info, err error) {
		assert.True(t, handled.Load(), "the handler had returned when the job ended")
		buried(info, err)
	}
	d.runEffects(t, o, wo, func(ctx context.Context, tx HandlerTx, _ queue.Job[int]) error {
		close(ctx.Value(left).(chan struct{}))
		<-left
		for range 20 {
			assert.NoError(t, tx.Do(t.Context(), "SELECT 1"))
		}
		handled.Store(true)
		return nil
	})
	enqueue(t, d.open(t, queue.Options{}), queue.Task{Kind: "effect", MaxAttempts: 1})
	assert.ErrorIs(t, suite.Wait(t, dead, "the end"), errBadDay)
	d.effective(t)
}

// A handler returns nil after its timeout.
func (mainTests) EffectsInTime(t *testing.T, d *env) {
	o, dead := observeDead()
	q := d.open(t, o)
	d.handleEffect(t, q, newHolder(t).ignoreTx, queue.Timeout(time.Second))
	work(t, q, queue.WorkerOptions{})
	enqueue(t, q, queue.Task{Kind: "effect", MaxAttempts: 1})
	assert.ErrorIs(t, suite.Wait(t, dead, "the end"), queue.ErrTimeout)
	d.effective(t)
}

// A handler returns nil although its job is cancelled.
func (mainTests) EffectsOfTheCancelled(t *testing.T, d *env) {
	dropped, h := make(drops, 1), newHolder(t)
	q := d.runEffects(t, queue.Options{Observer: dropped.observer(t)}, queue.WorkerOptions{}, h.ignoreTx)
	id := enqueue(t, q, queue.Task{Kind: "effect"})[0]
	h.has(t, 1)
	cancel(t, q, id, queue.JobClaimed)
	assert.Equal(t, id, suite.Wait(t, dropped, "its end").ID)
	d.effective(t)
}

// A worker that stops lets handlers commit while Grace lasts. It rolls others back, at no cost of
// an attempt.
func (mainTests) EffectsAtTheEndOfWork(t *testing.T, d *env) {
	for left, grace := range []time.Duration{time.Minute, -1} {
		q, h := d.open(t, queue.Options{}), newHolder(t)
		d.handleEffect(t, q, h.ignoreTx)
		stop := work(t, q, queue.WorkerOptions{Grace: grace})
		enqueue(t, q, queue.Task{Kind: "effect"})
		assert.Equal(t, 1, h.has(t, 1)[0].Attempt)
		stopped := make(chan error, 1)
		go func() { stopped <- stop() }()
		if grace > 0 {
			close(h.end)
		}
		assert.NoError(t, suite.Wait(t, stopped, "the end of work"))
		d.rows(t, "job", left)
		assert.EqualValues(t, 1, d.Count(t, countEffects), "grace %v", grace)
	}
	assert.Zero(t, d.Count(t, "SELECT attempt FROM dblock_queue_job"))
}

// deadlock makes two rows. first and second update them, in opposite orders for jobs 0 and 1. Both
// jobs have their first row before one that meets goes on.
func (d *env) deadlock(t *testing.T) (update func(ctx context.Context, tx HandlerTx, row int) error, meet func()) {
	t.Helper()
	d.exec(t, "CREATE TABLE suite_row (n INT PRIMARY KEY, times INT NOT NULL)",
		"INSERT INTO suite_row VALUES (0, 0), (1, 0)")
	var both sync.WaitGroup
	both.Add(2)
	return func(ctx context.Context, tx HandlerTx, row int) error {
		return tx.Do(ctx, fmt.Sprintf("UPDATE suite_row SET times = times + 1 WHERE n = %d", row))
	}, func() { both.Done(); both.Wait() }
}

const countUpdates = "SELECT sum(times) FROM suite_row"

// Two handlers deadlock, and run again at once. One always conflicts, and runs five times.
func (mainTests) EffectsOfConflicts(t *testing.T, d *env) {
	o, dead := observeDead()
	update, meet := d.deadlock(t)
	var mu sync.Mutex
	runs := make([]int, 3)
	q := d.runEffects(t, o, queue.WorkerOptions{}, func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
		mu.Lock()
		runs[job.Args]++
		first := runs[job.Args] == 1
		mu.Unlock()
		if job.Args == 2 {
			return tx.Do(ctx, d.conflict())
		}
		if err := update(ctx, tx, job.Args); err != nil {
			return err
		}
		if first {
			meet()
		}
		return update(ctx, tx, 1-job.Args)
	})
	made := enqueueMany(t, q, repeat(3, queue.Task{Kind: "effect", MaxAttempts: 1}))
	assert.ErrorIs(t, suite.Wait(t, dead, "the job that always conflicts"), dblock.ErrConflict)
	d.effective(t, made[:2]...)
	assert.EqualValues(t, 4, d.Count(t, countUpdates))
	// The victim may take its first row again before the other job gets it. Then they deadlock
	// again.
	assert.GreaterOrEqual(t, runs[0]+runs[1], 3)
	assert.LessOrEqual(t, max(runs[0], runs[1]), 5)
	assert.Equal(t, 5, runs[2])
}

// conflict is a statement that always conflicts.
func (d *env) conflict() string {
	return d.sql("DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '40001'; END $$", "SIGNAL SQLSTATE '40001'")
}

// The victim of a deadlock ignores it and returns nil. Its job does not end without its effect.
func (mainTests) EffectsOfASwallowedDeadlock(t *testing.T, d *env) {
	o, dead := observeDead()
	update, meet := d.deadlock(t)
	q := d.runEffects(t, o, queue.WorkerOptions{}, func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
		if err := update(ctx, tx, job.Args); err != nil {
			return err
		}
		meet()
		_ = update(ctx, tx, 1-job.Args)
		return nil
	})
	enqueueMany(t, q, repeat(2, queue.Task{Kind: "effect", MaxAttempts: 1}))
	assert.ErrorIs(t, suite.Wait(t, dead, "the victim"), dblock.ErrTxEnded)
	d.empty(t)
	assert.EqualValues(t, 1, d.Count(t, countEffects))
	assert.EqualValues(t, 2, d.Count(t, countUpdates))
}
