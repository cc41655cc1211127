package queue

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
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

// handleTx registers a handler.
func handleTx(t *testing.T, d *env, q *queue.Queue, kind string, fn TxHandler, opts ...queue.HandlerOption) {
	t.Helper()
	require.NoError(t, d.e.HandleTx(q, kind, fn, opts...))
}

// handleEffect registers a handler that writes the effect of its job, and then does what then does.
func (d *env) handleEffect(t *testing.T, q *queue.Queue, then TxHandler, opts ...queue.HandlerOption) {
	t.Helper()
	handleTx(t, d, q, "effect", func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
		if err := tx.Do(ctx, effectOf(job.Info)); err != nil {
			return err
		}
		return then(ctx, tx, job)
	}, opts...)
}

// handleTx is handle for handleEffect.
func (h *holder) handleTx(ctx context.Context, _ HandlerTx, job queue.Job[int]) error { return h.handle(ctx, job) }

func noMore(context.Context, HandlerTx, queue.Job[int]) error { return nil }

// effectOf is the effect of a job: a row, which may exist twice.
func effectOf(job queue.Info) string {
	return fmt.Sprintf("INSERT INTO suite_effect (job, attempt) VALUES ('%v', %d)", job.ID, job.Attempt)
}

const countEffects = "SELECT count(*) FROM suite_effect"

// effects makes the table.
func (d *env) effects(t *testing.T) {
	t.Helper()
	d.exec(t, "CREATE TABLE suite_effect (job CHAR(36) NOT NULL, attempt INT NOT NULL)")
}

// effective checks that each of some jobs has had its effect once, and no other job any.
func (d *env) effective(t *testing.T, jobs ...queue.ID) {
	t.Helper()
	var want []string
	for _, id := range jobs {
		want = append(want, id.String())
	}
	got := suite.ValuesOf[string](t, &suite.DB{DB: d.db}, "SELECT job FROM suite_effect")
	assert.ElementsMatch(t, want, got, "effects; dead are %v", d.deadJobs(t))
}

// observeDead sends the error of each job that dies.
func observeDead() (queue.Options, <-chan error) {
	dead := make(chan error, 100)
	return queue.Options{Observer: queue.Observer{Dead: func(_ queue.Info, err error) { dead <- err }}}, dead
}

// quickly is a worker that promotes and polls often.
var quickly = queue.WorkerOptions{
	Backoff: fast, Promote: 10 * time.Millisecond, Poll: 10 * time.Millisecond, Concurrency: 4,
}

func effectsAndEndsAreOne(t *testing.T, d *env) {
	d.effects(t)
	recorded := make(chan int, 200)
	var o queue.Options
	o.Observer.Recorded = func(_ string, jobs int, _ time.Duration) { recorded <- jobs }
	q := d.open(t, o)
	for _, q := range []*queue.Queue{q, d.open(t, o)} {
		d.handleEffect(t, q, func(_ context.Context, _ HandlerTx, job queue.Job[int]) error {
			switch {
			case job.Args == 0:
				return queue.Discard(errBadDay)
			case job.Args == 1:
				return queue.Cancel(errBadDay)
			case job.Args == 2 && job.Attempt == 1:
				panic(errBadDay)
			case job.Args == 3 && time.Since(job.EnqueuedAt) < 100*time.Millisecond:
				return queue.Snooze(20 * time.Millisecond)
			case job.Args%3 == 2 && job.Attempt < 3:
				return errBadDay
			}
			return nil
		})
		work(t, q, quickly)
	}
	made := enqueueMany(t, q, repeat(60, queue.Task{Kind: "effect"}))
	d.empty(t)
	d.effective(t, made[2:]...)
	d.rows(t, "dead", 1)
	for n := 0; n < len(made)-1; { // but for the job that is dead
		n += wait(t, recorded, "the jobs that are recorded")
	}
}

// Each job enqueues the next one of its chain in every attempt. The next one exists if the job has
// ended.
func effectsOfChainsOfJobs(t *testing.T, d *env) {
	d.effects(t)
	const chains, long = 5, 10
	q := d.open(t, queue.Options{})
	var mu sync.Mutex
	var all []queue.ID
	d.handleEffect(t, q, func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
		if job.Args < long-1 {
			if _, err := tx.Enqueue(ctx, queue.Task{Kind: "effect", Args: job.Args + 1}); err != nil {
				return err
			}
		}
		if job.Attempt < 2 {
			return errBadDay
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, job.ID)
		return nil
	})
	work(t, q, quickly)
	enqueueMany(t, q, slices.Repeat([]queue.Task{{Kind: "effect"}}, chains))
	d.empty(t)
	assert.Len(t, all, chains*long)
	d.effective(t, all...)
}

// The end frees unique keys and admits the next job of the group, also if the job has enqueued it.
func effectsInGroups(t *testing.T, d *env) {
	d.effects(t)
	q := d.open(t, queue.Options{})
	done, made := make(chan int, 10), make(chan queue.ID, 10)
	d.handleEffect(t, q, func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
		if job.Args == 1 {
			if _, err := tx.Enqueue(ctx, queue.Task{Kind: "effect", Args: 5, Group: "g", Unique: "5"}); err != nil {
				return err
			}
		}
		if job.Attempt == 1 && job.Args%2 == 1 {
			return errBadDay
		}
		done <- job.Args
		made <- job.ID
		return nil
	})
	for n := range 5 {
		enqueue(t, q, queue.Task{Kind: "effect", Args: n, Group: "g", Unique: fmt.Sprint(n)})
	}
	work(t, q, quickly)
	var ids []queue.ID
	for n := range 6 {
		assert.Equal(t, n, wait(t, done, "a job"))
		ids = append(ids, <-made)
	}
	d.empty(t)
	d.effective(t, ids...)
	enqueue(t, q, queue.Task{Kind: "effect", Args: 7, Group: "g", Unique: "0"})
	d.empty(t)
}

func effectsAndHistory(t *testing.T, d *env) {
	d.effects(t)
	q := d.open(t, queue.Options{History: 1})
	d.handleEffect(t, q, noMore)
	work(t, q, queue.WorkerOptions{})
	id := enqueue(t, q, queue.Task{Kind: "effect"})[0]
	d.empty(t)
	d.effective(t, id)
	assert.Equal(t, queue.Finished, suite.Must(q.Show(suite.Soon(t), id))(t).State)
}

// The middleware turns a success into a failure, and a panic into a success. Only what both say is
// done has an effect: of the panic there is none.
func effectsAndMiddleware(t *testing.T, d *env) {
	d.effects(t)
	q := d.open(t, queue.Options{})
	d.handleEffect(t, q, func(_ context.Context, _ HandlerTx, job queue.Job[int]) error {
		if job.Args == 1 {
			panic(errBadDay)
		}
		return nil
	})
	around := func(ctx context.Context, job queue.Info, next queue.Next) (err error) {
		defer func() {
			if recover() != nil {
				err = nil
			}
		}()
		if err := next(ctx); err != nil || job.Attempt > 1 {
			return err
		}
		return errBadDay
	}
	wo := quickly
	wo.Middleware = []queue.Middleware{around}
	work(t, q, wo)
	made := enqueue(t, q, repeat(2, queue.Task{Kind: "effect"})...)
	d.empty(t)
	d.effective(t, made[0])
	assert.EqualValues(t, 2, d.count(t, "SELECT attempt FROM suite_effect"))
}

// A handler returns nil after its timeout.
func effectsInTime(t *testing.T, d *env) {
	d.effects(t)
	o, dead := observeDead()
	q := d.open(t, o)
	d.handleEffect(t, q, func(ctx context.Context, _ HandlerTx, _ queue.Job[int]) error {
		<-ctx.Done()
		return nil
	}, queue.Timeout(time.Second))
	work(t, q, queue.WorkerOptions{})
	enqueue(t, q, queue.Task{Kind: "effect", MaxAttempts: 1})
	assert.ErrorIs(t, wait(t, dead, "the end"), queue.ErrTimeout)
	d.empty(t)
	d.effective(t)
}

// pair makes two rows, and a function that updates them in opposite orders for jobs 0 and 1. Both
// jobs have their first row before one wants its second, so that they deadlock.
func (d *env) pair(t *testing.T) (update func(ctx context.Context, tx HandlerTx, job, nth int) error, meet func()) {
	t.Helper()
	d.exec(t, "CREATE TABLE suite_row (n INT PRIMARY KEY, times INT NOT NULL)",
		"INSERT INTO suite_row VALUES (0, 0), (1, 0)")
	var both sync.WaitGroup
	both.Add(2)
	update = func(ctx context.Context, tx HandlerTx, job, nth int) error {
		return tx.Do(ctx, fmt.Sprintf("UPDATE suite_row SET times = times + 1 WHERE n = %d", (job+nth)%2))
	}
	return update, func() { both.Done(); both.Wait() }
}

const countUpdates = "SELECT sum(times) FROM suite_row"

// Two handlers deadlock, and run again at once. One always conflicts, and runs five times.
func effectsOfConflicts(t *testing.T, d *env) {
	d.effects(t)
	o, dead := observeDead()
	q := d.open(t, o)
	update, meet := d.pair(t)
	var mu sync.Mutex
	runs := make([]int, 3)
	d.handleEffect(t, q, func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
		mu.Lock()
		runs[job.Args]++
		n := runs[job.Args]
		mu.Unlock()
		if job.Args == 2 {
			return tx.Do(ctx, d.conflict())
		}
		if err := update(ctx, tx, job.Args, 0); err != nil {
			return err
		}
		if n == 1 {
			meet()
		}
		return update(ctx, tx, job.Args, 1)
	})
	work(t, q, queue.WorkerOptions{Concurrency: 3})
	made := enqueueMany(t, q, repeat(3, queue.Task{Kind: "effect", MaxAttempts: 1}))
	assert.ErrorIs(t, wait(t, dead, "the job that always conflicts"), dblock.ErrConflict)
	d.empty(t)
	d.effective(t, made[:2]...)
	assert.EqualValues(t, 4, d.count(t, countUpdates))
	// The victim may take its first row again before the other job gets it. Then they deadlock
	// again.
	assert.GreaterOrEqual(t, runs[0]+runs[1], 3)
	assert.LessOrEqual(t, max(runs[0], runs[1]), 5)
	assert.Equal(t, 5, runs[2])
}

// conflict is a statement that always conflicts.
func (d *env) conflict() string {
	if d.e.Kind == devdb.Postgres {
		return "DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '40001'; END $$"
	}
	return "SIGNAL SQLSTATE '40001'"
}

// The victim of a deadlock ignores it and returns nil. Its job does not end without its effect.
func effectsOfASwallowedDeadlock(t *testing.T, d *env) {
	d.effects(t)
	o, dead := observeDead()
	q := d.open(t, o)
	update, meet := d.pair(t)
	d.handleEffect(t, q, func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
		if err := update(ctx, tx, job.Args, 0); err != nil {
			return err
		}
		meet()
		_ = update(ctx, tx, job.Args, 1)
		return nil
	})
	enqueueMany(t, q, repeat(2, queue.Task{Kind: "effect", MaxAttempts: 1}))
	work(t, q, queue.WorkerOptions{})
	assert.ErrorIs(t, wait(t, dead, "the victim"), dblock.ErrTxEnded)
	d.empty(t)
	assert.EqualValues(t, 1, d.count(t, countEffects))
	assert.EqualValues(t, 2, d.count(t, countUpdates))
}
