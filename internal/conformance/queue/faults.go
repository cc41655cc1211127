package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/queue"
)

// faultsLast is how long a test of faults goes on: as long as DBLOCK_SOAK says, if it is set.
func faultsLast(t *testing.T, short time.Duration) time.Duration {
	t.Helper()
	return suite.Must(time.ParseDuration(cmp.Or(os.Getenv(suite.EnvSoak), short.String())))(t)
}

// runWorkersFaults runs the faults of workers and their server, each test alone on the machine.
func (e Queue) runWorkersFaults(t *testing.T) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, *env)
	}{
		{"SurvivesFaults", survivesFaults},
		{"AZombieIsRefused", aZombieIsRefused},
		{"ControlWithoutTheFence", controlWithoutTheFence},
		{"NobodyMeetsADeadlock", nobodyMeetsADeadlock},
		{"ASlowNetworkStrandsNoJob", aSlowNetworkStrandsNoJob},
		{"ARestartStrandsNoJob", aRestartStrandsNoJob},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, e.env(t)) })
	}
}

// onAServerOfItsOwn returns an env on a server that may be killed. If there is none, it returns d,
// and no server.
func (d *env) onAServerOfItsOwn(t *testing.T) (own *env, server *devdb.Server) {
	t.Helper()
	server, dsn, db := suite.ServerOfItsOwn(t, d.e.Kind)
	if server == nil {
		return d, nil
	}
	return &env{d.e, dsn, db}, server
}

// Eight processes run jobs of 5 to 20 ms for 6 s, or as long as DBLOCK_SOAK says. One of them is
// killed every 2 s, others freeze for longer than the TTL, replies get lost, and the server is
// killed once. In the end all jobs are done, and the histories of producers and workers are
// checked.
func survivesFaults(t *testing.T, d *env) {
	lasts := faultsLast(t, 6*time.Second)
	d, server := d.onAServerOfItsOwn(t)
	c := d.fleet(t, howFaulty)
	ctx, stop := context.WithTimeout(t.Context(), lasts)
	defer stop()
	made := ledger{jobs: make(map[string]*enqueued)}
	var work sync.WaitGroup
	for p := range 3 {
		work.Go(func() { made.produce(ctx, t, d, p) })
	}
	c.strike(ctx, t, server, lasts)
	work.Wait()
	d.drained(t)
	d.until(t, "SELECT count(*) FROM dblock_queue_claim", 0) // of processes that were killed without jobs
	h := newHistory(made.jobs, c.stop(t), d.deadJobs(t))
	wrong := h.check()
	assert.Empty(t, wrong[:min(20, len(wrong))])
	d.empty(t)
	t.Logf("%d duplicates refused; %s", made.duplicates, h.tally())
	assert.True(t, server == nil || h.faults[everybody] != nil, "the server was never down: this shows too little")
	if os.Getenv(suite.EnvSoak) != "" { // else rare on a machine that gets little done
		assert.NotEmpty(t, h.dead)
		assert.Positive(t, made.duplicates)
	}
	known := d.count(t, `SELECT count(*) FROM dblock_queue_history h
		JOIN dblock_queue_dead d ON d.job_id = h.job_id WHERE h.outcome = 3`)
	assert.GreaterOrEqual(t, int(known), len(h.dead), "dead jobs in history")
}

// strike kills a worker every 2 s, freezes others, and kills the server in the middle.
func (c *fleet) strike(ctx context.Context, t *testing.T, server *devdb.Server, lasts time.Duration) {
	half := time.Now().Add(lasts / 2)
	var thaws sync.WaitGroup
	for n := 1; suite.SleepFor(ctx, time.Second); n++ {
		c.noteThawed()
		switch {
		case n%2 == 0:
			c.kill(t)
		case n%4 == 1:
			c.freeze(&thaws)
		}
		if server != nil && time.Now().After(half) {
			from := suite.Uptime()
			assert.NoError(t, server.Kill())
			assert.NoError(t, server.Restart(context.WithoutCancel(t.Context())))
			c.suffered(everybody, down, from, suite.Uptime())
			server = nil
		}
	}
	thaws.Wait()
	c.noteThawed()
}

// drained waits until all jobs have ended.
func (d *env) drained(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for n := -1; n != 0; suite.SleepFor(ctx, 20*time.Millisecond) {
		err := d.db.QueryRowContext(ctx, "SELECT count(*) FROM dblock_queue_job").Scan(&n)
		require.NoError(t, err, "%d jobs have not ended", n)
	}
}

// deadJobs are the last errors of dead jobs.
func (d *env) deadJobs(t *testing.T) map[string]string {
	t.Helper()
	dead := make(map[string]string)
	id := d.sql("job_id",
		"INSERT(INSERT(INSERT(INSERT(LOWER(HEX(job_id)), 9, 0, '-'), 14, 0, '-'), 19, 0, '-'), 24, 0, '-')")
	for _, line := range d.suiteDB().Texts(t, "SELECT CONCAT("+id+", ' ', last_error) FROM dblock_queue_dead") {
		job, last, _ := strings.Cut(line, " ")
		dead[job] = last
	}
	return dead
}

// Two workers freeze while they have jobs, until others have begun these. What they end then is
// refused and counted.
func aZombieIsRefused(t *testing.T, d *env) {
	h := d.freezeUntil(t, howZombie, func(h *history) bool { return len(h.zombies()) > 0 })
	assert.Empty(t, h.check(), h.tally())
}

// The same without a check whose the jobs are: the history shows it.
func controlWithoutTheFence(t *testing.T, d *env) {
	h := d.freezeUntil(t, howNoFence, func(h *history) bool {
		return strings.Contains(fmt.Sprint(h.check()), "that had begun once more")
	})
	t.Log(h.check(), h.tally())
}

// freezeUntil has eight workers run plain jobs, and freezes two of them, until it is enough.
func (d *env) freezeUntil(t *testing.T, how string, enough func(*history) bool) (h *history) {
	t.Helper()
	q := d.open(t, queue.Options{})
	for range 10 {
		c := d.fleet(t, how)
		made := ledger{jobs: make(map[string]*enqueued)}
		ctx, stop := context.WithCancel(t.Context())
		var thaws, work sync.WaitGroup
		work.Go(func() {
			for suite.SleepFor(ctx, rand.N(20*time.Millisecond)) {
				if d.fewWaitIn(ctx) {
					tasks, jobs := repeat(20, queue.Task{Kind: "note"}), make([]*enqueued, 20)
					for i := range jobs {
						jobs[i] = &enqueued{max: 25}
					}
					ids, err := q.EnqueueMany(context.WithoutCancel(ctx), tasks)
					made.take(t, jobs, ids, err)
				}
			}
		})
		d.until(t, fmt.Sprintf("SELECT LEAST(%d, count(DISTINCT member_id)) FROM dblock_queue_claim", processes), processes)
		c.freeze(&thaws)
		c.freeze(&thaws)
		thaws.Wait()
		c.noteThawed()
		stop()
		work.Wait()
		d.drained(t)
		if h = newHistory(made.jobs, c.stop(t), d.deadJobs(t)); enough(h) {
			return h
		}
	}
	require.Fail(t, "no zombie has ended a job", h.tally())
	return nil
}

// ledger is what producers know of their jobs.
type ledger struct {
	mu         sync.Mutex
	jobs       map[string]*enqueued
	duplicates int
}

// produce enqueues jobs of all sorts, over connections that are cut now and then.
func (l *ledger) produce(ctx context.Context, t *testing.T, d *env, producer int) {
	dialer := new(faultconn.Dialer)
	q, closePool, err := d.e.OpenOn(t.Context(), d.dsn, dialer, queue.Options{TTL: faultyTTL, Timeout: 3 * time.Second})
	if !assert.NoError(t, err) {
		return
	}
	defer closePool()
	defer func() { _ = closeIn(q, time.Minute) }()
	seqs := make(map[string]int)
	for n := 0; suite.SleepFor(ctx, 10*time.Millisecond+rand.N(20*time.Millisecond)); n++ {
		if !d.fewWaitIn(ctx) {
			continue
		}
		if n%10 == 0 {
			dialer.Arm(1+rand.N(20), faultconn.CutAfter, nil)
		}
		tasks, jobs := mixedTasks(fmt.Sprint(producer, "/"), n%4 == 0, seqs)
		made, err := q.EnqueueMany(context.WithoutCancel(ctx), tasks)
		l.take(t, jobs, made, err)
	}
}

// take notes what a producer knows after its call.
func (l *ledger) take(t *testing.T, jobs []*enqueued, made []queue.ID, err error) {
	var dup *queue.DuplicateError
	switch {
	case err == nil, errors.As(err, &dup), errors.Is(err, dblock.ErrOutcomeUnknown):
	case errors.Is(err, dblock.ErrUnavailable), errors.Is(err, dblock.ErrBusy):
		return // nothing is enqueued
	default:
		t.Errorf("enqueue: %v", err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if dup != nil {
		l.duplicates += len(dup.Duplicates)
		for _, x := range dup.Duplicates {
			jobs[x.Task] = nil
		}
	}
	for i, j := range jobs {
		if j != nil {
			j.sure = !errors.Is(err, dblock.ErrOutcomeUnknown)
			l.jobs[made[i].String()] = j
		}
	}
}

// mixedTasks are ten tasks: one is delayed, one has few attempts and, with keys, most have keys.
func mixedTasks(groups string, keys bool, seqs map[string]int) (tasks []queue.Task, jobs []*enqueued) {
	tasks = repeat(10, queue.Task{Kind: "note", MaxAttempts: 25})
	for i := range tasks {
		task, j := &tasks[i], &enqueued{limit: 1}
		switch {
		case i == 0:
			task.Delay = rand.N(300 * time.Millisecond)
		case i == 1:
			task.MaxAttempts = 2
		case !keys:
		case i < 5:
			task.Group = groups + fmt.Sprint(rand.N(3))
			seqs[task.Group]++
			j.seq = seqs[task.Group]
		case i < 7:
			task.Group, task.AtMost, j.limit = "three", 3, 3
		case i < 9:
			task.Unique = fmt.Sprint(rand.N(5))
		}
		j.max, j.group, j.unique = task.MaxAttempts, task.Group, task.Unique
		jobs = append(jobs, j)
	}
	return tasks, jobs
}

// fewWaitIn reports whether so few jobs wait that a producer goes on. Rescued jobs begin soon then.
func (d *env) fewWaitIn(ctx context.Context) bool {
	var few bool
	err := d.db.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM (SELECT 1 FROM dblock_queue_ready LIMIT 100) r) < 100
		AND (SELECT count(*) FROM (SELECT 1 FROM dblock_queue_blocked LIMIT 100) b) < 100`).Scan(&few)
	return err == nil && few
}
