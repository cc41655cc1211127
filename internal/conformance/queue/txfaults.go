package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/queue"
)

// sleeper is a worker that has a job, with its effect written and not committed, and does not know that it was taken for dead.
type sleeper struct {
	lost chan int   // how many of its ends were refused
	wake chan error // what its handler is to return
}

// sleeper has a worker take the one job that there is, and then takes it away.
func (d *env) sleeper(t *testing.T, register func(q *queue.Queue, s *sleeper, began chan<- queue.ID)) *sleeper {
	t.Helper()
	s := &sleeper{lost: make(chan int, 10), wake: make(chan error)}
	q := d.open(t, queue.Options{TTL: time.Hour, Observer: queue.Observer{Lost: func(_ string, n int) { s.lost <- n }}})
	began := make(chan queue.ID, 1)
	register(q, s, began)
	enqueue(t, q, queue.Task{Kind: "effect", Args: 1})
	work(t, q, queue.WorkerOptions{Concurrency: 1, Ahead: -1, Rescue: -1})
	wait(t, began, "the job")
	return s
}

func (d *env) sleeperTx(t *testing.T) *sleeper {
	return d.sleeper(t, func(q *queue.Queue, s *sleeper, began chan<- queue.ID) {
		handleTx(t, d, q, "effect", func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
			if err := tx.Do(ctx, effectOf(job.Info)); err != nil {
				return err
			}
			began <- job.ID
			return <-s.wake
		})
	})
}

// successor has another process take the job, write its effect, and end when it is told to.
func (d *env) successor(t *testing.T) (end chan error) {
	t.Helper()
	d.exec(t, "DELETE FROM dblock_member")
	q := d.open(t, queue.Options{})
	if ready, dead, err := q.Rescue(t.Context()); err != nil || ready != 1 || dead != 0 {
		t.Fatalf("rescued %d and %d, %v", ready, dead, err)
	}
	began := make(chan int, 1)
	end = make(chan error)
	handleTx(t, d, q, "effect", func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
		if err := tx.Do(ctx, effectOf(job.Info)); err != nil {
			return err
		}
		began <- job.Attempt
		return <-end
	})
	work(t, q, queue.WorkerOptions{Rescue: -1}) // the control puts a claim back
	if n := wait(t, began, "the job, once more"); n != 2 {
		t.Errorf("attempt %d", n)
	}
	return end
}

const countEffects = "SELECT count(*) FROM suite_effect"

// Whoever was taken for dead has no effect, and is told, before the other one has ended and after it.
func aZombiesEffectsRollBack(t *testing.T, d *env) {
	for _, first := range []string{"the zombie", "the successor"} {
		t.Run(first, func(t *testing.T) {
			d := d.e.env(t)
			d.effects(t)
			s := d.sleeperTx(t)
			end := d.successor(t)
			if first == "the successor" {
				end <- nil
				d.until(t, "SELECT count(*) FROM dblock_queue_job", 0)
			}
			s.wake <- nil
			if n := wait(t, s.lost, "the refusal"); n != 1 {
				t.Errorf("%d were refused", n)
			}
			if first == "the zombie" {
				if n := d.count(t, countEffects); n != 0 {
					t.Errorf("%d effects of a zombie", n)
				}
				end <- nil
			}
			d.empty(t)
			if n := d.count(t, "SELECT attempt FROM suite_effect"); n != 2 || d.count(t, countEffects) != 1 {
				t.Errorf("the effect is of attempt %d", n)
			}
		})
	}
}

// The control of the above: with the rows of the claim and of the job there, as if nobody had taken the one away and ended the other, there
// are two effects.
func controlAZombiesEffects(t *testing.T, d *env) {
	d.effects(t)
	s := d.sleeperTx(t)
	tables := []string{"claim", "job"}
	for _, table := range tables {
		d.exec(t, "CREATE TABLE suite_"+table+" AS SELECT * FROM dblock_queue_"+table)
	}
	end := d.successor(t)
	end <- nil
	d.until(t, countEffects, 1)
	for _, table := range tables {
		d.exec(t, "INSERT INTO dblock_queue_"+table+" SELECT * FROM suite_"+table)
	}
	s.wake <- nil
	d.until(t, countEffects, 2)
}

// The other control: where the effect is committed apart from the job's end, the fence of the end comes too late.
func controlEffectsApartFromTheEnd(t *testing.T, d *env) {
	d.effects(t)
	s := d.sleeper(t, func(q *queue.Queue, s *sleeper, began chan<- queue.ID) {
		handle(t, q, "effect", func(ctx context.Context, job queue.Job[int]) error {
			began <- job.ID
			err := <-s.wake
			d.exec(t, effectOf(job.Info))
			return err
		})
	})
	end := d.successor(t)
	s.wake <- nil
	if n := wait(t, s.lost, "the refusal"); n != 1 {
		t.Errorf("%d were refused", n)
	}
	end <- nil
	d.until(t, countEffects, 2)
	d.empty(t)
}

// Whoever knows that it was taken for dead does not even try.
func aToldZombiesEffectsRollBack(t *testing.T, d *env) {
	d.effects(t)
	began, lost, causes, thaw := make(chan queue.ID, 1), make(chan int, 10), make(chan error, 1), make(chan error)
	q := d.open(t, queue.Options{TTL: 3 * time.Second, Observer: queue.Observer{Lost: func(_ string, n int) { lost <- n }}})
	handleTx(t, d, q, "effect", func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
		if err := tx.Do(ctx, effectOf(job.Info)); err != nil {
			return err
		}
		began <- job.ID
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return <-thaw
	})
	made := enqueue(t, q, queue.Task{Kind: "effect", Args: 1})
	work(t, q, queue.WorkerOptions{Concurrency: 1, Ahead: -1, Rescue: -1})
	wait(t, began, "the job")
	end := d.successor(t)
	if cause := wait(t, causes, "the zombie to be told"); !errors.Is(cause, dblock.ErrLost) {
		t.Errorf("its context ended with %v", cause)
	}
	thaw <- nil
	if n := wait(t, lost, "the refusal"); n != 1 {
		t.Errorf("%d were refused", n)
	}
	end <- nil
	d.empty(t)
	d.effective(t, made...)
}

// What a worker wrote that was killed is not there.
func effectsOfTheKilled(t *testing.T, d *env) {
	d.effects(t)
	const jobs = 10
	q := d.open(t, queue.Options{})
	var tasks []queue.Task
	for n := range jobs {
		tasks = append(tasks, queue.Task{Kind: "effect", Args: n})
	}
	made, err := q.EnqueueMany(t.Context(), tasks)
	if err != nil {
		t.Fatal(err)
	}
	victim := d.startWorker(t)
	victim.Says(t, "wrote")
	victim.Kill()
	handleTx(t, d, q, "effect", func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
		return tx.Do(ctx, effectOf(job.Info))
	})
	work(t, q, queue.WorkerOptions{Rescue: 100 * time.Millisecond})
	d.empty(t)
	d.effective(t, made...)
}

// cutWorker is a process with one handler at a time and nothing else under way, whose connections are struck where a handler says so.
type cutWorker struct {
	dialer faultconn.Dialer
	mu     sync.Mutex
	runs   map[queue.ID]int
	last   queue.ID         // whose handler was called last
	doubts map[queue.ID]int // whose commits failed, or got no answer, in which run
}

// cutWorker strikes each job of kind "effect" once, at the call that the job says, of the connection that has its transaction. The write
// of its effect is the first one.
func (d *env) cutWorker(t *testing.T, timeout time.Duration, mode func(n int) (k int, m faultconn.Mode), trouble func(c *cutWorker, doing string)) *cutWorker {
	t.Helper()
	c := &cutWorker{runs: make(map[queue.ID]int), doubts: make(map[queue.ID]int)}
	o := queue.Options{TTL: time.Hour, Timeout: timeout, History: 1}
	o.Observer.Trouble = func(doing string, err error) {
		if strings.HasPrefix(doing, "committing") {
			c.mu.Lock()
			c.doubts[c.last] = c.runs[c.last]
			c.mu.Unlock()
		}
		trouble(c, doing)
	}
	q, closePool, err := d.e.OpenOn(t.Context(), d.dsn, &c.dialer, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.dialer.Disarm()
		c.dialer.Release()
		_ = q.Close(suite.Soon(t))
		closePool()
	})
	handleTx(t, d, q, "effect", func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
		effect := effectOf(job.Info)
		if c.calls(job.ID) == 1 {
			k, m := mode(job.Args)
			c.dialer.ArmAt(effect, k, m)
		}
		return tx.Do(ctx, effect)
	})
	work(t, q, queue.WorkerOptions{
		Concurrency: 1, Ahead: -1, Poll: 10 * time.Millisecond, Rescue: -1, Promote: -1, Backoff: func(int, error) time.Duration { return 0 },
	})
	other := d.open(t, queue.Options{}) // has jobs be ready whose transactions could not begin
	work(t, other, queue.WorkerOptions{Queue: "none"})
	return c
}

// calls counts the calls of a job's handler, this one included.
func (c *cutWorker) calls(job queue.ID) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs[job]++
	c.last = job
	return c.runs[job]
}

// cutJobs enqueues jobs, every third of them with keys.
func (d *env) cutJobs(t *testing.T, n int) []queue.ID {
	t.Helper()
	var tasks []queue.Task
	for n := range n {
		task := queue.Task{Kind: "effect", Args: n}
		if n%3 == 0 {
			task.Group, task.Unique = "g", fmt.Sprint(n)
		}
		tasks = append(tasks, task)
	}
	made, err := d.open(t, queue.Options{}).EnqueueMany(suite.Soon(t), tasks)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// landed counts commits that were in doubt, and those of them that had taken place.
func (c *cutWorker) landed() (doubts, landed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, run := range c.doubts {
		if c.runs[id] == run {
			landed++
		}
	}
	return len(c.doubts), landed
}

// Connections that break at any message of a job's end: each job has its effect once, and its history, and nothing else is left.
func effectsCutAnywhere(t *testing.T, d *env) {
	const points = 28
	d.effects(t)
	made := d.cutJobs(t, 2*3*points)
	c := d.cutWorker(t, 0, func(n int) (int, faultconn.Mode) {
		return n/6 + 1, []faultconn.Mode{faultconn.CutBefore, faultconn.CutAfter}[n%2]
	}, func(*cutWorker, string) {})
	d.empty(t)
	d.effective(t, made...)
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_history"); int(n) != len(made) {
		t.Errorf("the history has %d of %d", n, len(made))
	}
	doubts, landed := c.landed()
	t.Logf("%d commits were in doubt, %d had taken place", doubts, landed)
	if landed == 0 || landed == doubts {
		t.Errorf("%d commits were in doubt, %d had taken place: the test has cut none, or not on both sides", doubts, landed)
	}
}

// A commit that reaches the server late, when it is long looked for: the answer waits for it.
func effectsOfACommitThatComesLate(t *testing.T, d *env) {
	points := 10
	if d.e.Kind != devdb.Postgres {
		points = 18
	}
	d.effects(t)
	made := d.cutJobs(t, 3*points)
	c := d.cutWorker(t, time.Second, func(n int) (int, faultconn.Mode) { return n/3 + 1, faultconn.Late }, func(c *cutWorker, doing string) {
		if !strings.HasPrefix(doing, "committing") { // it was looked for, or others have waited
			go c.dialer.Release()
		}
	})
	d.empty(t)
	d.effective(t, made...)
	if doubts, landed := c.landed(); doubts == 0 || landed == 0 {
		t.Errorf("%d commits were in doubt, %d had taken place", doubts, landed)
	}
}
