package queue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/mysqlqueue"
	"github.com/dblock-go/dblock/queue/pgqueue"
)

func (mainTests) RefusesBadTxHandlers(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	handleTx(t, d, q, "taken", noMore)
	for what, err := range map[string]error{
		"no handler":     d.e.HandleTx(q, "k", nil),
		"no kind":        d.e.HandleTx(q, "", noMore),
		"a kind twice":   d.e.HandleTx(q, "taken", noMore),
		"another engine": handleTxOfOtherDriver(d, q),
	} {
		assert.ErrorIs(t, err, dblock.ErrInvalid, what)
	}
}

func handleTxOfOtherDriver(d *env, q *queue.Queue) error {
	if d.Kind == devdb.Postgres {
		return mysqlqueue.HandleTx(q, "k", func(context.Context, *sql.Tx, queue.Job[int]) error { return nil })
	}
	return pgqueue.HandleTx(q, "k", func(context.Context, pgx.Tx, queue.Job[int]) error { return nil })
}

// Handlers end their transaction, or go on after it has ended. The attempt fails with ErrTxEnded.
// What a handler committed on MySQL and MariaDB exists, and its job does not end with it.
func (mainTests) EffectsOfHandlersThatEndTheirTx(t *testing.T, d *env) {
	o, dead := observeDead()
	committed, refuses := 1, false
	last := func(ctx context.Context, tx HandlerTx) error { return tx.Do(ctx, "CREATE TABLE suite_more (n INT)") }
	if d.Kind == devdb.Postgres { // it refuses Commit, and the last case is an error that is not returned
		committed, refuses = 0, true
		last = func(ctx context.Context, tx HandlerTx) error { _ = tx.Do(ctx, "SELECT nothing"); return nil }
	}
	refused := func(err error) error { // drops the refusal
		if refuses != errors.Is(err, dblock.ErrInvalid) {
			return fmt.Errorf("it says %w", err)
		}
		return nil
	}
	cases := []struct {
		then func(ctx context.Context, tx HandlerTx) error // after the effect
		left int                                           // effects that exist
	}{
		{func(ctx context.Context, tx HandlerTx) error { return refused(tx.Commit(ctx)) }, committed},
		{func(ctx context.Context, tx HandlerTx) error { return refused(tx.Rollback(ctx)) }, 0},
		{func(ctx context.Context, tx HandlerTx) error { return tx.Do(ctx, "COMMIT") }, 1},
		{func(ctx context.Context, tx HandlerTx) error { return tx.Do(ctx, "ROLLBACK") }, 0},
		{last, committed},
	}
	if d.Kind == devdb.Postgres {
		cases = append(cases, cases[0], cases[0])
		cases[5].then = func(ctx context.Context, tx HandlerTx) error { return tx.Do(ctx, "ROLLBACK AND CHAIN") }
		cases[6].then, cases[6].left = func(ctx context.Context, tx HandlerTx) error { return tx.Do(ctx, "COMMIT AND CHAIN") }, 1
	}
	q := d.runEffects(t, o, queue.WorkerOptions{}, func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
		return cases[job.Args].then(ctx, tx)
	})
	for n, c := range cases {
		before := d.Count(t, countEffects)
		enqueue(t, q, queue.Task{Kind: "effect", Args: n, MaxAttempts: 1})
		assert.ErrorIs(t, suite.Wait(t, dead, "the end"), dblock.ErrTxEnded, "case %d", n)
		assert.EqualValues(t, c.left, d.Count(t, countEffects)-before, "effects of case %d", n)
	}
	d.empty(t)
	d.rows(t, "dead", len(cases))
}

func (mainTests) KeptTransactionsAreOfNoUse(t *testing.T, d *env) {
	var kept HandlerTx
	q := d.open(t, queue.Options{})
	d.handleEffect(t, q, func(_ context.Context, tx HandlerTx, _ queue.Job[int]) error { kept = tx; return nil })
	stop := work(t, q, queue.WorkerOptions{})
	id := enqueue(t, q, queue.Task{Kind: "effect"})[0]
	d.empty(t)
	require.NoError(t, stop())
	assert.Error(t, kept.Do(t.Context(), effectOf(queue.Info{ID: id})))
	assert.Error(t, suite.Second(kept.Enqueue(t.Context(), queue.Task{Kind: "effect"})))
	assert.Error(t, kept.Commit(t.Context()))
	assert.Error(t, kept.Rollback(t.Context()))
	d.effective(t, id)
}

// The pool has fewer connections than there are jobs. A job without a connection does not begin,
// and has had no attempt.
func (mainTests) EffectsWithoutConnections(t *testing.T, d *env) {
	d.effects(t)
	const patient, hasty = 40, 10
	waiting, open := make(chan string, 1000), make(chan struct{})
	o := queue.Options{TTL: time.Hour}
	o.Observer.Trouble = func(doing string, _ error) {
		if doing == "beginning a transaction for a job" {
			waiting <- doing
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
	handleTx(t, d, q, "hasty", effect, queue.Timeout(5*time.Second))
	made := enqueueMany(t, q, append(repeat(patient, queue.Task{Kind: "patient"}),
		repeat(hasty, queue.Task{Kind: "hasty", Priority: 1})...))
	work(t, q, queue.WorkerOptions{Concurrency: patient + hasty, Promote: 10 * time.Millisecond})
	suite.Wait(t, waiting, "a job without a connection")
	close(open)
	d.effective(t, made...)
}

// endings runs jobs that end in their transactions, each in its last attempt. Their handlers return
// after lock. putOff waits until so many ends were put off.
func (d *env) endings(t *testing.T, lock func(), tasks ...queue.Task) (q *queue.Queue, made []queue.ID, putOff func(times int)) {
	t.Helper()
	h, events := newHolder(t), make(chan string, 1000)
	release := sync.OnceFunc(func() { close(h.end) })
	t.Cleanup(release)
	o := queue.Options{Timeout: time.Second} // no end waits for so long
	o.Observer.Trouble = func(doing string, _ error) { events <- doing }
	o.Observer.Discarded = func(_ queue.Info, err error) { events <- "died: " + err.Error() }
	q = d.open(t, o)
	d.handleEffect(t, q, func(ctx context.Context, _ HandlerTx, job queue.Job[int]) error {
		assert.Equal(t, 1, job.Attempt)
		return h.handle(ctx, job)
	}, queue.Backoff(func(int, error) time.Duration { return 0 }))
	work(t, q, queue.WorkerOptions{Promote: 20 * time.Millisecond, Concurrency: 10})
	for _, task := range tasks {
		task.Kind, task.MaxAttempts = "effect", 1
		made = append(made, enqueue(t, q, task)...)
	}
	h.has(t, len(tasks))
	lock()
	release()
	return q, made, func(times int) {
		for times > 0 {
			event := suite.Wait(t, events, "an end that is put off")
			require.NotContains(t, event, "died")
			if strings.HasPrefix(event, "ending a job") {
				times--
			}
		}
	}
}

// The rows of a group and of a unique key are locked when their jobs end. Both are put off, at no
// cost of an attempt, and other jobs end meanwhile. Both have their effects once the rows are free.
func (mainTests) EffectsOfLockedKeys(t *testing.T, d *env) {
	release := func() {}
	lock := func() { release = d.lock(t, lockedGroup, lockedKey) }
	q, made, putOff := d.endings(t, lock, queue.Task{Group: "locked"}, queue.Task{Unique: "locked"})
	putOff(4) // each runs again
	others := enqueue(t, q, queue.Task{Kind: "effect"}, queue.Task{Kind: "effect", Group: "other"},
		queue.Task{Kind: "effect", Unique: "other"})
	d.ended(t, others)
	assert.Equal(t, 2, d.standing(t, made), "jobs whose keys are locked")
	release()
	d.effective(t, append(made, others...)...)
	d.rows(t, "dead", 0)
}

// Each end of a job conflicts. The handler runs again at once, and then the job is put off.
func (mainTests) EffectsOfEndsThatGiveWay(t *testing.T, d *env) {
	drop := d.Trigger(t, "AFTER DELETE", "dblock_queue_job", "1 = 1", suite.Raise(d.Kind, "40001", "no"))
	_, made, putOff := d.endings(t, func() {}, queue.Task{})
	putOff(2)
	drop()
	d.effective(t, made...)
	d.rows(t, "dead", 0)
}

// cutOff is a process that gets no reply to the end of its one job. It stands still before it looks
// for the job, or sends the end again.
type cutOff struct {
	job     queue.ID
	ends    chan string // the observer's calls for the job
	unknown chan error
	wake    chan struct{}
}

// cutOff strikes the commit of a job's first attempt, with HandleTx or with Handle.
func (d *env) cutOff(t *testing.T, inTx bool, mode faultconn.Mode, attempts int) *cutOff {
	t.Helper()
	d.effects(t)
	c := &cutOff{ends: make(chan string, 10), unknown: make(chan error, 10), wake: make(chan struct{})}
	asleep := make(chan struct{})
	o := queue.Options{TTL: time.Hour, Timeout: time.Minute, PollOnly: true}
	o.Observer.Completed = func(queue.Info, time.Duration) {
		if inTx { // else it is called before the end is sent
			c.ends <- "finished"
		}
	}
	o.Observer.Recorded = func(string, int, time.Duration) { c.ends <- "recorded" }
	o.Observer.Lost = func(string, int) { c.ends <- "lost" }
	o.Observer.Trouble = func(doing string, err error) {
		if strings.HasPrefix(doing, "committing") || strings.HasPrefix(doing, "exchanging") {
			close(asleep)
			<-c.wake
		}
		if suite.IsUnknown(err) && strings.HasPrefix(doing, "looking") {
			c.unknown <- err
		}
	}
	dialer := new(faultconn.Dialer)
	q := d.openOn(t, dialer, o)
	// A server may not read what is sent just before the connection is cut.
	call := map[bool]int{true: 2, false: 1}[mode == faultconn.CutAfter]
	if inTx {
		d.handleEffect(t, q, func(context.Context, HandlerTx, queue.Job[int]) error {
			dialer.ArmAt(d.commit(), call, mode) // nothing else commits
			return nil
		})
	} else {
		if d.Kind == devdb.Postgres && mode == faultconn.CutBefore { // the driver would know that nothing was sent
			mode = faultconn.Late
		}
		handle(t, q, "effect", func(_ context.Context, job queue.Job[int]) error {
			// On Postgres the message that has the job commits.
			dialer.ArmAt(d.sql(string(job.ID[:]), d.commit()), call, mode)
			return nil
		})
	}
	c.job = enqueue(t, q, queue.Task{Kind: "effect", MaxAttempts: attempts})[0]
	work(t, q, queue.WorkerOptions{Concurrency: 1, Ahead: -1, Syncs: 1, Rescue: -1, Promote: -1})
	suite.Wait(t, asleep, "an end without a reply")
	return c
}

// othersEnd has another process end the job of a process that was declared dead.
func (d *env) othersEnd(t *testing.T, other *queue.Queue) {
	t.Helper()
	d.handleEffect(t, other, noMore, queue.Backoff(func(int, error) time.Duration { return 0 }))
	d.evict(t)
	suite.Until(t, "the job is rescued", func() bool { // a rescue passes over a claim that is locked
		_, _, err := other.Rescue(t.Context())
		require.NoError(t, err)
		return d.Count(t, "SELECT count(*) FROM dblock_queue_claim") == 0
	})
	work(t, other, queue.WorkerOptions{Poll: 10 * time.Millisecond, Rescue: -1})
	d.empty(t)
}

// each runs a test for each of some cases, with a database of its own.
func each[T any](t *testing.T, d *env, cases map[string]T, test func(t *testing.T, d *env, c T)) {
	t.Helper()
	suite.Each(t, cases, func(t *testing.T, c T) { test(t, d.e.env(t), c) })
}

// lostEnd is an end of a job that got no reply.
type lostEnd struct {
	inTx          bool // of HandleTx, else of Handle
	mode          faultconn.Mode
	attempts      int
	then          string // what happens to the process before it looks for the job, or sends the end again
	want          string // what it says of the job
	effects, dead int
}

// An end that another process has made impossible, or that was recorded before, is known for what
// it is. A commit that rolled back is never recorded, however another process has ended the job
// since. One that took place is recorded while the process has its row; without it the outcome is
// unknown. An end of Handle that was not recorded is not recorded when it is sent again. The
// controls put the process's row back: then an end that was not recorded counts as recorded.
func (mainTests) EndsWithoutAnAnswer(t *testing.T, d *env) {
	const before, after, others, gone, back = faultconn.CutBefore, faultconn.CutAfter, "others", "gone", "back"
	each(t, d, map[string]lostEnd{
		"EffectsOfAJobThatOthersEnded/Buried":    {true, before, 1, others, "lost", 0, 1},
		"EffectsOfAJobThatOthersEnded/Elsewhere": {true, before, 2, others, "lost", 1, 0},
		"EffectsOfAJobThatOthersEnded/Cancelled": {true, before, 2, "cancel", "lost", 0, 0},
		"EffectsOfACommitWithoutAnAnswer/Alive":  {true, after, 1, "", "recorded", 1, 0},
		"EffectsOfACommitWithoutAnAnswer/Gone":   {true, after, 1, gone, "lost", 1, 0},
		"EndsOfAJobThatOthersEnded":              {false, before, 1, others, "lost", 0, 1},
		"EndsSentAgain":                          {false, after, 1, "", "recorded", 0, 0},
		"ControlAJobThatOthersEnded/InTx":        {true, before, 1, back, "recorded", 0, 1},
		"ControlAJobThatOthersEnded/Plain":       {false, before, 1, back, "recorded", 0, 1},
	}, func(t *testing.T, d *env, end lostEnd) {
		c, other := d.cutOff(t, end.inTx, end.mode, end.attempts), d.open(t, queue.Options{})
		if end.mode == after {
			d.Until(t, "SELECT count(*) FROM dblock_queue_job", 0) // it takes place
		}
		switch end.then {
		case gone:
			d.evict(t)
		case "cancel":
			cancel(t, other, c.job, queue.JobClaimed)
			d.othersEnd(t, other)
		case others:
			d.othersEnd(t, other)
		case back:
			d.exec(t, "CREATE TABLE suite_member AS SELECT * FROM dblock_member")
			d.othersEnd(t, other)
			d.exec(t, "DELETE FROM dblock_member", "INSERT INTO dblock_member SELECT * FROM suite_member")
		}
		close(c.wake)
		assert.Equal(t, end.want, suite.Wait(t, c.ends, "the end of the job"))
		if end.inTx && end.want == "lost" {
			suite.Wait(t, c.unknown, "the unknown outcome")
		}
		assert.EqualValues(t, end.effects, d.Count(t, countEffects))
		d.rows(t, "dead", end.dead)
	})
}
