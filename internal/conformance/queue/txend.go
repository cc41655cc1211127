package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

func refusesBadTxHandlers(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	handleTx(t, d, q, "taken", noMore)
	for what, err := range map[string]error{
		"no handler":     d.e.HandleTx(q, "k", nil),
		"no kind":        d.e.HandleTx(q, "", noMore),
		"a kind twice":   d.e.HandleTx(q, "taken", noMore),
		"another engine": queue.HandleIn(q, "k", func(context.Context, struct{}, queue.Job[int]) error { return nil }),
	} {
		assert.ErrorIs(t, err, dblock.ErrInvalid, what)
	}
}

// A worker that stops lets handlers commit while Grace lasts. It rolls others back, at no cost of
// an attempt.
func effectsAtTheEndOfWork(t *testing.T, d *env) {
	d.effects(t)
	for left, grace := range []time.Duration{time.Minute, -1} {
		q, h := d.open(t, queue.Options{}), newHolder()
		d.handleEffect(t, q, func(ctx context.Context, _ HandlerTx, job queue.Job[int]) error {
			_ = h.obey(ctx, job)
			return nil
		})
		stop := work(t, q, queue.WorkerOptions{Grace: grace})
		enqueue(t, q, queue.Task{Kind: "effect"})
		assert.Equal(t, 1, h.has(t, 1)[0].Attempt)
		stopped := make(chan error, 1)
		go func() { stopped <- stop() }()
		if grace > 0 {
			close(h.end)
		}
		assert.NoError(t, wait(t, stopped, "the end of work"))
		d.rows(t, "job", left)
		assert.EqualValues(t, 1, d.count(t, countEffects), "grace %v", grace)
	}
	assert.Zero(t, d.count(t, "SELECT attempt FROM dblock_queue_job"))
}

// Handlers end their transaction, or go on after it has ended. The attempt fails with ErrTxEnded.
// What a handler committed on MySQL and MariaDB exists, and its job does not end with it.
func effectsOfHandlersThatEndTheirTx(t *testing.T, d *env) {
	d.effects(t)
	postgres := d.e.Kind == devdb.Postgres
	o, dead := observeDead()
	q := d.open(t, o)
	committed := 1
	if postgres { // it refuses Commit
		committed = 0
	}
	refused := func(err error) error { // drops the refusal
		if postgres != errors.Is(err, dblock.ErrInvalid) {
			return fmt.Errorf("it says %w", err)
		}
		return nil
	}
	do := func(s string) TxHandler {
		return func(ctx context.Context, tx HandlerTx, _ queue.Job[int]) error { return tx.Do(ctx, s) }
	}
	cases := []struct {
		what  string
		then  TxHandler // after the effect
		left  int       // effects that exist
		other bool      // it is of the other engine
	}{
		{"Commit", func(ctx context.Context, tx HandlerTx, _ queue.Job[int]) error {
			return refused(tx.Commit(ctx))
		}, committed, false},
		{"Rollback", func(ctx context.Context, tx HandlerTx, _ queue.Job[int]) error {
			return refused(tx.Rollback(ctx))
		}, 0, false},
		{"COMMIT", do("COMMIT"), 1, false},
		{"ROLLBACK", do("ROLLBACK"), 0, false},
		{"an error that is not returned", func(ctx context.Context, tx HandlerTx, _ queue.Job[int]) error {
			_ = tx.Do(ctx, "SELECT nothing")
			return nil
		}, 0, !postgres},
		{"CREATE TABLE", do("CREATE TABLE suite_more (n INT)"), 1, postgres},
	}
	d.handleEffect(t, q, func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
		return cases[job.Args].then(ctx, tx, job)
	})
	work(t, q, queue.WorkerOptions{})
	for n, c := range cases {
		if c.other {
			continue
		}
		before := d.count(t, countEffects)
		enqueue(t, q, queue.Task{Kind: "effect", Args: n, MaxAttempts: 1})
		assert.ErrorIs(t, wait(t, dead, "the end"), dblock.ErrTxEnded, c.what)
		assert.EqualValues(t, c.left, d.count(t, countEffects)-before, "effects of %s", c.what)
	}
	d.empty(t)
	d.rows(t, "dead", len(cases)-1)
}

func keptTransactionsAreOfNoUse(t *testing.T, d *env) {
	d.effects(t)
	q := d.open(t, queue.Options{})
	var kept HandlerTx
	d.handleEffect(t, q, func(_ context.Context, tx HandlerTx, _ queue.Job[int]) error {
		kept = tx
		return nil
	})
	stop := work(t, q, queue.WorkerOptions{})
	id := enqueue(t, q, queue.Task{Kind: "effect"})[0]
	d.empty(t)
	require.NoError(t, stop())
	assert.Error(t, kept.Do(t.Context(), effectOf(queue.Info{ID: id})))
	assert.Error(t, suite.Second(kept.Enqueue(t.Context(), queue.Task{Kind: "effect"})))
	assert.Error(t, kept.Commit(t.Context()))
	assert.Error(t, kept.Rollback(t.Context()))
	d.effective(t, id)
	d.empty(t)
}

// A cancelled job has no effect, although its handler returns nil.
func effectsOfTheCancelled(t *testing.T, d *env) {
	d.effects(t)
	dropped, h := make(drops, 1), newHolder()
	q := d.open(t, queue.Options{Observer: dropped.observer(t)})
	d.handleEffect(t, q, func(ctx context.Context, _ HandlerTx, job queue.Job[int]) error {
		_ = h.obey(ctx, job)
		return nil
	})
	work(t, q, queue.WorkerOptions{})
	id := enqueue(t, q, queue.Task{Kind: "effect"})[0]
	h.has(t, 1)
	cancel(t, q, id, queue.Claimed)
	assert.Equal(t, id, wait(t, dropped, "its end").ID)
	d.empty(t)
	d.effective(t)
}

// The pool has fewer connections than there are jobs. A job without a connection does not begin,
// and has had no attempt.
func effectsWithoutConnections(t *testing.T, d *env) {
	d.effects(t)
	const patient, hasty = 40, 10
	waiting, open := make(chan struct{}), make(chan struct{})
	said := sync.OnceFunc(func() { close(waiting) })
	o := queue.Options{TTL: time.Hour}
	o.Observer.Trouble = func(doing string, _ error) {
		if doing == "beginning a transaction for a job" {
			said()
		}
	}
	q := d.open(t, o)
	effect := func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
		assert.Equal(t, 1, job.Attempt)
		return tx.Do(ctx, effectOf(job.Info))
	}
	handleTx(t, d, q, "patient", func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
		<-open
		return effect(ctx, tx, job)
	}, queue.Timeout(-1))
	handleTx(t, d, q, "hasty", effect, queue.Timeout(time.Second))
	made := enqueueMany(t, q, append(repeat(patient, queue.Task{Kind: "patient"}),
		repeat(hasty, queue.Task{Kind: "hasty", Priority: 1})...))
	work(t, q, queue.WorkerOptions{Concurrency: patient + hasty, Promote: 10 * time.Millisecond})
	wait(t, waiting, "a job without a connection")
	close(open)
	d.empty(t)
	d.effective(t, made...)
}

// endings is a worker whose jobs end in their transactions, each in its last attempt.
type endings struct {
	*queue.Queue
	d      *env
	events chan string // the reports, and the deaths
	made   []queue.ID
}

// endings begins jobs, and lets their handlers return after lock.
func (d *env) endings(t *testing.T, tasks []queue.Task, lock func()) *endings {
	t.Helper()
	d.effects(t)
	e, h := &endings{d: d, events: make(chan string, 1000)}, newHolder()
	release := sync.OnceFunc(func() { close(h.end) })
	t.Cleanup(release)
	o := queue.Options{Timeout: time.Second} // no end waits for so long
	o.Observer.Trouble = func(doing string, _ error) { e.events <- doing }
	o.Observer.Dead = func(_ queue.Info, err error) { e.events <- "died: " + err.Error() }
	e.Queue = d.open(t, o)
	d.handleEffect(t, e.Queue, func(ctx context.Context, _ HandlerTx, job queue.Job[int]) error {
		assert.Equal(t, 1, job.Attempt)
		return h.handle(ctx, job)
	}, queue.Backoff(func(int, error) time.Duration { return 0 }))
	work(t, e.Queue, queue.WorkerOptions{Promote: 20 * time.Millisecond, Concurrency: 10})
	for _, task := range tasks {
		task.Kind, task.MaxAttempts = "effect", 1
		e.made = append(e.made, enqueue(t, e.Queue, task)...)
	}
	h.has(t, len(tasks))
	lock()
	release()
	return e
}

// putOff waits until ends were put off so many times.
func (e *endings) putOff(t *testing.T, times int) {
	t.Helper()
	for range times {
		for what := ""; !strings.HasPrefix(what, "ending a job"); {
			what = wait(t, e.events, "an end that is put off")
			require.NotContains(t, what, "died")
		}
	}
}

// end checks that each job has had its effect once, with the first attempt.
func (e *endings) end(t *testing.T) {
	t.Helper()
	e.d.empty(t)
	e.d.effective(t, e.made...)
	e.d.rows(t, "dead", 0)
}

// The rows of a group and of a unique key are locked when their jobs end. Both are put off, at no
// cost of an attempt, and other jobs end meanwhile. Both have their effects once the rows are free.
func effectsOfLockedKeys(t *testing.T, d *env) {
	release := func() error { return nil }
	e := d.endings(t, []queue.Task{{Group: "locked"}, {Unique: "locked"}}, func() {
		release = d.lock(t, lockedGroup, lockedKey).Rollback
	})
	e.putOff(t, 4) // each runs again
	others := enqueue(t, e.Queue, queue.Task{Kind: "effect"}, queue.Task{Kind: "effect", Group: "other"},
		queue.Task{Kind: "effect", Unique: "other"})
	d.ended(t, others)
	assert.Equal(t, 2, d.standing(t, e.made), "jobs whose keys are locked")
	require.NoError(t, release())
	e.made = append(e.made, others...)
	e.end(t)
}

// Each end of a job conflicts. The handler runs again at once, and then the job is put off.
func effectsOfEndsThatGiveWay(t *testing.T, d *env) {
	drop := d.trigger(t, "DELETE ON dblock_queue_job", "RAISE 'no' USING ERRCODE = '40P01'", d.conflict())
	e := d.endings(t, []queue.Task{{}}, func() {})
	e.putOff(t, 2)
	drop()
	e.end(t)
}
