package queue

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/queue"
)

// zombieWorker has a job, and does not know that it was declared dead.
type zombieWorker struct {
	*holder
	lost chan int // how many of its ends were refused
}

// zombie has a worker begin a job. The handler that register makes calls handle.
func (d *env) zombie(t *testing.T, ttl time.Duration, register func(q *queue.Queue, z *zombieWorker)) *zombieWorker {
	t.Helper()
	z := &zombieWorker{newHolder(), make(chan int, 10)}
	o := queue.Options{TTL: ttl}
	o.Observer.Lost = func(_ string, n int) { z.lost <- n }
	q := d.open(t, o)
	register(q, z)
	enqueue(t, q, queue.Task{Kind: "effect"})
	work(t, q, queue.WorkerOptions{Concurrency: 1, Ahead: -1, Rescue: -1})
	z.has(t, 1)
	return z
}

// zombieTx is a zombie that has written its effect, and not committed.
func (d *env) zombieTx(t *testing.T) *zombieWorker {
	t.Helper()
	return d.zombie(t, time.Hour, func(q *queue.Queue, z *zombieWorker) { d.handleEffect(t, q, z.handleTx) })
}

// refused ends the zombie's job, and waits until that is refused.
func (z *zombieWorker) refused(t *testing.T) {
	t.Helper()
	z.end <- nil
	assert.Equal(t, 1, wait(t, z.lost, "the refusal"))
}

// successor declares all processes dead, and has another one write the job's effect.
func (d *env) successor(t *testing.T) *holder {
	t.Helper()
	d.evict(t)
	q, h := d.open(t, queue.Options{}), newHolder()
	rescue(t, q, 1, 0)
	d.handleEffect(t, q, h.handleTx)
	work(t, q, queue.WorkerOptions{Rescue: -1}) // the control puts a claim back
	assert.Equal(t, 2, h.has(t, 1)[0].Attempt)
	return h
}

// A zombie has no effect, and is refused, before its successor has ended and after it.
func aZombiesEffectsRollBack(t *testing.T, d *env) {
	cases := map[string]bool{"the zombie": true, "the successor": false}
	each(t, d, cases, func(t *testing.T, d *env, zombieFirst bool) {
		z := d.zombieTx(t)
		s := d.successor(t)
		if zombieFirst {
			z.refused(t)
			assert.Zero(t, d.count(t, countEffects))
			s.end <- nil
		} else {
			s.end <- nil
			d.until(t, "SELECT count(*) FROM dblock_queue_job", 0)
			z.refused(t)
		}
		d.empty(t)
		assert.EqualValues(t, 1, d.count(t, countEffects))
		assert.EqualValues(t, 2, d.count(t, "SELECT attempt FROM suite_effect"))
	})
}

// controlAZombiesEffects puts the rows of the claim and of the job back. There are two effects.
func controlAZombiesEffects(t *testing.T, d *env) {
	z := d.zombieTx(t)
	d.exec(t, "CREATE TABLE suite_claim AS SELECT * FROM dblock_queue_claim",
		"CREATE TABLE suite_job AS SELECT * FROM dblock_queue_job")
	d.successor(t).end <- nil
	d.until(t, countEffects, 1)
	d.exec(t, "INSERT INTO dblock_queue_claim SELECT * FROM suite_claim",
		"INSERT INTO dblock_queue_job SELECT * FROM suite_job")
	z.end <- nil
	d.until(t, countEffects, 2)
}

// controlEffectsApartFromTheEnd commits the effect apart from the job's end. The refusal comes too
// late.
func controlEffectsApartFromTheEnd(t *testing.T, d *env) {
	z := d.zombie(t, time.Hour, func(q *queue.Queue, z *zombieWorker) {
		handle(t, q, "effect", func(ctx context.Context, job queue.Job[int]) error {
			err := z.handle(ctx, job)
			d.exec(t, effectOf(job.Info))
			return err
		})
	})
	s := d.successor(t)
	z.refused(t)
	s.end <- nil
	d.until(t, countEffects, 2)
	d.empty(t)
}

// A process whose context has ended with ErrLost does not try to commit.
func aToldZombiesEffectsRollBack(t *testing.T, d *env) {
	causes := make(chan error, 1)
	z := d.zombie(t, 3*time.Second, func(q *queue.Queue, z *zombieWorker) {
		d.handleEffect(t, q, func(ctx context.Context, _ HandlerTx, job queue.Job[int]) error {
			z.began <- job.Info
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return <-z.end
		})
	})
	s := d.successor(t)
	assert.ErrorIs(t, wait(t, causes, "the end of the context"), dblock.ErrLost)
	z.refused(t)
	s.end <- nil
	d.empty(t)
	assert.EqualValues(t, 1, d.count(t, countEffects))
}

func effectsOfTheKilled(t *testing.T, d *env) {
	d.effects(t)
	made := enqueueMany(t, d.open(t, queue.Options{}), repeat(10, queue.Task{Kind: "effect"}))
	victim := d.startWorker(t)
	victim.Says(t, "wrote")
	victim.Kill()
	d.runEffects(t, queue.Options{}, queue.WorkerOptions{Rescue: 100 * time.Millisecond}, noMore)
	d.effective(t, made...)
}

// cutWorker runs one job at a time, over connections that are struck once for each job.
type cutWorker struct {
	dialer faultconn.Dialer
	mu     sync.Mutex
	runs   map[queue.ID]int
	last   queue.ID         // of the job that ran last
	lost   map[queue.ID]int // the run whose commit failed or got no reply
}

// cutWorker strikes each job at the call that at returns, of the connection that has its
// transaction. The first call writes its effect.
func (d *env) cutWorker(
	t *testing.T, timeout time.Duration, at func(n int) (k int, m faultconn.Mode),
	trouble func(c *cutWorker, doing string),
) *cutWorker {
	t.Helper()
	c := &cutWorker{runs: make(map[queue.ID]int), lost: make(map[queue.ID]int)}
	o := queue.Options{TTL: time.Hour, Timeout: timeout, History: 1}
	o.Observer.Trouble = func(doing string, err error) {
		if strings.HasPrefix(doing, "committing") {
			c.mu.Lock()
			c.lost[c.last] = c.runs[c.last]
			c.mu.Unlock()
		}
		trouble(c, doing)
	}
	q := d.openOn(t, &c.dialer, o)
	handleTx(t, d, q, "effect", func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
		effect := effectOf(job.Info)
		if c.calls(job.ID) == 1 {
			k, m := at(job.Args)
			c.dialer.ArmAt(effect, k, m)
		}
		return tx.Do(ctx, effect)
	})
	work(t, q, queue.WorkerOptions{
		Concurrency: 1, Ahead: -1, Poll: 10 * time.Millisecond, Rescue: -1, Promote: -1,
		Backoff: func(int, error) time.Duration { return 0 },
	})
	// Another process promotes jobs whose transactions could not begin.
	work(t, d.open(t, queue.Options{}), queue.WorkerOptions{Queue: "none"})
	return c
}

// calls counts the calls of a job's handler with this one.
func (c *cutWorker) calls(job queue.ID) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs[job]++
	c.last = job
	return c.runs[job]
}

// cutJobs enqueues jobs. Every third one has keys.
func (d *env) cutJobs(t *testing.T, n int) []queue.ID {
	t.Helper()
	tasks := repeat(n, queue.Task{Kind: "effect"})
	for i := 0; i < n; i += 3 {
		tasks[i].Group, tasks[i].Unique = "g", fmt.Sprint(i)
	}
	return enqueueMany(t, d.open(t, queue.Options{}), tasks)
}

// commits counts the commits without a reply, and how many of them took place.
func (c *cutWorker) commits(t *testing.T) (lost, landed int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, run := range c.lost {
		if c.runs[id] == run {
			landed++
		}
	}
	t.Logf("%d commits got no reply, %d took place", len(c.lost), landed)
	return len(c.lost), landed
}

// Connections break at any message of a job's end. Each job has its effect and its history once.
func effectsCutAnywhere(t *testing.T, d *env) {
	points := map[bool]int{true: 14, false: 28}[d.e.Kind == devdb.Postgres] // more than an end has messages
	d.effects(t)
	made := d.cutJobs(t, 2*3*points)
	c := d.cutWorker(t, 0, func(n int) (int, faultconn.Mode) {
		return n/6 + 1, []faultconn.Mode{faultconn.CutBefore, faultconn.CutAfter}[n%2]
	}, func(*cutWorker, string) {})
	d.effective(t, made...)
	d.rows(t, "history", len(made))
	lost, landed := c.commits(t)
	require.Positive(t, landed, "the test has cut no commit after it took place")
	require.Less(t, landed, lost, "the test has cut no commit before it took place")
}

// A commit reaches the server when its worker has looked for it. The worker's answer waits for it.
func effectsOfACommitThatComesLate(t *testing.T, d *env) {
	points := map[bool]int{true: 10, false: 18}[d.e.Kind == devdb.Postgres]
	d.effects(t)
	made := d.cutJobs(t, 3*points)
	late := func(n int) (int, faultconn.Mode) { return n/3 + 1, faultconn.Late }
	c := d.cutWorker(t, 400*time.Millisecond, late, func(c *cutWorker, doing string) {
		if !strings.HasPrefix(doing, "committing") { // the worker has looked for it, or others have waited
			go c.dialer.Release()
		}
	})
	d.effective(t, made...)
	_, landed := c.commits(t)
	assert.Positive(t, landed)
}
