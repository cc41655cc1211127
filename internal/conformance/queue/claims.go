package queue

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/queue"
)

// A job that was committed late stands before jobs that were claimed long ago. It is found although
// there are always more later jobs than a claim takes.
func (faultTests) FindsWhatWasCommittedLate(t *testing.T, d *env) {
	d.findsLateJobs(t, 1, queue.WorkerOptions{Concurrency: 2, Batch: 2, Ahead: -1, Syncs: 1})
}

func (mainTests) FindsLateJobsBesideABacklog(t *testing.T, d *env) {
	d.findsLateJobs(t, 5, queue.WorkerOptions{Concurrency: 8})
}

// findsLateJobs commits jobs that were enqueued before a backlog, while a worker works on it. Each
// job of the backlog enqueues another one, until all late jobs have begun.
func (d *env) findsLateJobs(t *testing.T, late int, o queue.WorkerOptions) {
	t.Helper()
	q := d.open(t, queue.Options{})
	begun, found := make(chan int, 1<<20), make(chan int, late)
	var ended atomic.Bool
	handle(t, q, "backlog", func(ctx context.Context, job queue.Job[int]) error {
		begun <- job.Args
		if ended.Load() {
			return nil
		}
		return suite.Second(q.Enqueue(ctx, queue.Task{Kind: "backlog", Args: job.Args + 1}))
	})
	handle(t, q, "late", record(found))
	txs := make([]*sql.Tx, late)
	for i := range txs {
		txs[i], _ = d.beginWith(t, q, queue.Task{Kind: "late"})
	}
	const backlog = 1000 // more than the worker has at a time
	enqueueMany(t, q, repeat(backlog, queue.Task{Kind: "backlog"}))
	defer ended.Store(true)
	work(t, q, o)
	for _, tx := range txs {
		for range backlog / 10 {
			suite.Wait(t, begun, "a job of the backlog")
		}
		require.NoError(t, tx.Commit())
	}
	for range late {
		suite.Wait(t, found, "a job that was committed late")
	}
	ended.Store(true)
	d.empty(t)
}

// A claim reaches the server, or commits, after its worker has looked for it. The worker looks
// again, so that its jobs do not wait for the heartbeat after 20 minutes. Each claim is struck at
// another call.
func (faultTests) FindsAClaimThatComesLate(t *testing.T, d *env) {
	points := map[bool]int{true: 8, false: 20}[d.Kind == devdb.Postgres]
	host := d.open(t, queue.Options{})
	for k := 1; k <= points; k++ {
		enqueue(t, host, queue.Task{Queue: struckQueue, Kind: "note", Args: k})
		d.findsAClaim(t, k)
	}
	d.empty(t)
}

const struckQueue = "struck" // claims have the name

// findsAClaim strikes call k of a worker's first claim. Claims meanwhile pass the one job over,
// whose row is locked. What was struck arrives when the worker has looked for the claim.
func (d *env) findsAClaim(t *testing.T, k int) {
	t.Helper()
	release := d.lock(t, "dblock_queue_ready")
	dialer, struck, done := new(faultconn.Dialer), make(chan struct{}, 100), make(chan int)
	o := queue.Options{TTL: time.Hour, Timeout: time.Second}
	o.Observer.Trouble = func(string, error) { struck <- struct{}{} }
	q, closePool, err := d.e.OpenOn(t.Context(), d.DSN, dialer, o)
	require.NoError(t, err)
	handle(t, q, "note", record(done))
	dialer.ArmAt(struckQueue, k, faultconn.Late)
	stop := work(t, q, queue.WorkerOptions{
		Queue: struckQueue, Concurrency: 1, Poll: 300 * time.Millisecond, Rescue: -1, Promote: -1,
	})
	select {
	case <-struck:
	case <-time.After(300 * time.Millisecond): // a claim has fewer calls
	}
	time.Sleep(60 * time.Millisecond) // it is looked for at once, and then after 100 ms
	release()
	dialer.Release()
	assert.Equal(t, k, suite.Wait(t, done, fmt.Sprintf("job whose claim was struck at call %d", k)))
	dialer.Disarm()
	assert.NoError(t, stop())
	_ = suite.CloseWithin(q, time.Minute) // it may be struck, too
	dialer.Release()
	closePool()
}

// A claim is recorded for a living worker when no statement of the claim is under way any more. The
// worker finds it with a heartbeat, and the jobs run, but for those that were cancelled.
func (mainTests) FindsAClaimThatItDoesNotKnow(t *testing.T, d *env) {
	dropped := make(drops, 1000)
	o := queue.Options{PollOnly: true, TTL: 5 * time.Second, Observer: dropped.observer(t)}
	q, other, held := d.open(t, o), d.open(t, o), newHolder(t)
	var did once
	handle(t, q, "first", held.handle)
	handle(t, q, "note", did.handle)
	handle(t, q, "run", did.handle)
	stop := work(t, q, queue.WorkerOptions{Concurrency: 1, Ahead: -1})
	enqueue(t, other, queue.Task{Kind: "first", Args: 0})
	held.has(t, 1)
	all, gone := enqueue(t, other, keyed("run")...), enqueue(t, other, keyed("note")...)
	d.claimAll(t)
	for _, id := range gone {
		suite.Must(other.Cancel(suite.Soon(t), id))(t) // it may have been released
	}
	close(held.end)
	d.empty(t)
	did.exactly(t, all)
	dropped.of(t, gone, "note")
	assert.NoError(t, stop())
}

// Of the jobs of a claim one ends, and one is to be tried again. The server forgets both, and all
// connections end. When the last job of the claim has ended, these two run again: no job is left in
// a claim that is closed.
func (mainTests) AForgottenEndIsRepeated(t *testing.T, d *env) {
	const jobs = 3
	dialer, held := &faultconn.Dialer{}, newHolder(t)
	q := d.openOn(t, dialer, queue.Options{TTL: 6 * time.Second})
	handle(t, q, "note", held.handle)
	tasks := repeat(jobs, queue.Task{Kind: "note"})
	tasks[0].Unique = "k"
	enqueueMany(t, q, tasks)
	work(t, q, queue.WorkerOptions{Concurrency: jobs, Backoff: queue.Exponential(time.Hour, time.Hour), Rescue: -1})
	held.has(t, jobs)
	require.EqualValues(t, 1, d.Count(t, "SELECT count(DISTINCT claim_id) FROM dblock_queue_claim"), "claims")
	forget := d.Forgets(t, "dblock_queue_job", "dblock_queue_claim", "dblock_queue_scheduled", "dblock_queue_unique")
	held.end <- nil
	held.end <- assert.AnError
	d.Until(t, "SELECT count(*) FROM dblock_queue_scheduled", 1)
	d.Until(t, "SELECT count(*) FROM dblock_queue_job", jobs-1)
	forget()
	dialer.CloseAll()
	held.end <- nil
	held.has(t, jobs-1)
	close(held.end)
	d.empty(t)
}

// claimAll records one more claim of the process that has one: of all jobs that are ready.
func (d *env) claimAll(t *testing.T) {
	t.Helper()
	claim := `INSERT INTO dblock_queue_claim (member_id, claim_id, job_id, queue, priority, ready_at)
		SELECT c.member_id, 'a claim 16 bytes', r.job_id, r.queue, r.priority, r.ready_at
		FROM dblock_queue_claim c CROSS JOIN dblock_queue_ready r`
	if d.Kind == devdb.Postgres {
		claim = `INSERT INTO dblock_queue_claim (claim_id, member_id, queue, job_ids)
			SELECT 'a0000000-0000-7000-8000-000000000001', c.member_id, c.queue,
				ARRAY(SELECT r.job_id FROM dblock_queue_ready r) FROM dblock_queue_claim c`
	}
	tx := d.openTx(t)
	for _, statement := range []string{claim, "DELETE FROM dblock_queue_ready"} {
		suite.Must(tx.ExecContext(t.Context(), statement))(t)
	}
	require.NoError(t, tx.Commit())
}

// Work returns while the database takes no ends of jobs, and says so. The Queue records them later.
func (mainTests) RecordsWhatIsLeftAfterWork(t *testing.T, d *env) {
	const jobs = 3
	enqueueMany(t, d.open(t, queue.Options{}), repeat(jobs, queue.Task{Kind: "note"}))
	q, h := d.open(t, queue.Options{Timeout: 300 * time.Millisecond}), newHolder(t)
	handle(t, q, "note", h.handle)
	stop := work(t, q, queue.WorkerOptions{Concurrency: jobs, Promote: -1, Rescue: -1})
	h.has(t, jobs)
	release := d.lock(t, "dblock_queue_claim", "dblock_queue_job")
	close(h.end)
	assert.ErrorIs(t, stop(), queue.ErrNotRecorded)
	release()
	d.empty(t)
	assert.Empty(t, h.began, "runs once more")
}

// The payloads of the jobs take longer to read than Timeout. Each job runs once, with its payload.
func (mainTests) PayloadsMayTakeLongerThanTimeout(t *testing.T, d *env) {
	const jobs, size = 25, 200 << 10
	var tasks []queue.Task
	for n := range jobs {
		tasks = append(tasks, queue.Task{Kind: "large", Args: strings.Repeat(string(rune('A'+n)), size)})
	}
	all := enqueueMany(t, d.open(t, queue.Options{}), tasks)
	q := d.openOn(t, &faultconn.Dialer{Rate: 5 << 20}, queue.Options{Timeout: 500 * time.Millisecond})
	var did once
	handle(t, q, "large", func(_ context.Context, job queue.Job[string]) error {
		assert.Equal(t, size, strings.Count(job.Args, job.Args[:1]))
		assert.Len(t, job.Args, size)
		did.did(job.ID)
		return nil
	})
	stop := work(t, q, queue.WorkerOptions{})
	d.empty(t)
	did.exactly(t, all)
	assert.NoError(t, stop())
}

// weakCodec is JSON. It has weak pointers to the payloads that were decoded.
type weakCodec struct {
	mu   sync.Mutex
	seen []weak.Pointer[byte]
}

func (*weakCodec) Encode(v any) ([]byte, error) { return json.Marshal(v) }

func (c *weakCodec) Decode(data []byte, v any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, weak.Make(&data[0]))
	return json.Unmarshal(data, v)
}

// kept counts the payloads that are in memory.
func (c *weakCodec) kept() (n int) {
	runtime.GC()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.seen {
		if p.Value() != nil {
			n++
		}
	}
	return n
}

// Many jobs of a claim end, and one goes on. The payloads of the others are freed.
func (mainTests) ALongJobKeepsNoPayloads(t *testing.T, d *env) {
	const jobs = 60
	payloads := &weakCodec{}
	q := d.open(t, queue.Options{Codec: payloads})
	h := newHolder(t)
	handle(t, q, "note", func(_ context.Context, job queue.Job[string]) error {
		h.began <- job.Info
		return <-h.end
	})
	tasks := repeat(jobs, queue.Task{Kind: "note"})
	for i := range tasks {
		tasks[i].Args = strings.Repeat("x", 10_000)
	}
	enqueueMany(t, q, tasks)
	work(t, q, queue.WorkerOptions{Concurrency: jobs})
	h.has(t, jobs)
	require.EqualValues(t, 1, d.Count(t, "SELECT count(DISTINCT claim_id) FROM dblock_queue_claim"), "claims")
	assert.Greater(t, payloads.kept(), jobs/2, "payloads in memory while the jobs run")
	for range jobs - 1 {
		h.end <- nil
	}
	d.Until(t, "SELECT count(*) FROM dblock_queue_job", 1)
	suite.Until(t, "the payloads are freed", func() bool { return payloads.kept() <= 1 })
	close(h.end)
	d.empty(t)
}

// pausePoint is a place between the claim of a job and its handler.
type pausePoint struct {
	args any
	last bool   // it is the jobs' last attempt, so that its beginning is recorded before
	text string // of the statement before which the queue is paused
	by   string // else what pauses it: "codec" or "middleware"
	inTx bool   // the handler has a transaction, whose statements come after the middleware
}

// A queue is paused at each place between the claim of a job and its handler. Once Pause has
// returned, no job begins. The jobs keep their places, and have had no attempt.
func (mainTests) APausedJobDoesNotBegin(t *testing.T, d *env) {
	each(t, d, map[string]pausePoint{
		"payloads are read":         {args: strings.Repeat("x", 64<<10), text: "name: ReadPayloads"},
		"a beginning is recorded":   {last: true, text: "name: BeginJobs"},
		"arguments are decoded":     {by: "codec"},
		"a middleware takes long":   {last: true, by: "middleware"},
		"a transaction begins":      {last: true, text: d.sql("begin", "SAVEPOINT dblock_tx"), inTx: true},
		"a middleware, before a tx": {by: "middleware", inTx: true},
	}, func(t *testing.T, d *env, at pausePoint) { at.check(t, d) })
}

// pausingCodec pauses a queue when it decodes.
type pausingCodec struct {
	queue.JSON
	pause func()
}

func (c pausingCodec) Decode(data []byte, into any) error {
	c.pause()
	return c.JSON.Decode(data, into)
}

func (at pausePoint) check(t *testing.T, d *env) {
	const jobs = 8
	dialer, begun := &faultconn.Dialer{}, make(chan int, jobs) // attempts
	q := d.openOn(t, dialer, queue.Options{})
	var paused atomic.Bool // and not resumed
	pause := sync.OnceFunc(func() {
		assert.NoError(t, q.Pause(context.Background(), ""))
		paused.Store(true)
	})
	begin := func(job queue.Info) error {
		assert.False(t, paused.Load(), "a job begins after the pause")
		begun <- job.Attempt
		return nil
	}
	wo, late := queue.WorkerOptions{Rescue: -1, Promote: -1}, at.inTx && at.text != ""
	if late { // another job may begin meanwhile
		wo.Concurrency = 1
	}
	wo.Middleware = []queue.Middleware{func(ctx context.Context, _ queue.Info, next queue.Next) error {
		if at.by == "middleware" {
			pause()
		}
		if late {
			dialer.HookAt(at.text, pause)
		}
		_ = next(ctx)
		return nil // which would end the job
	}}
	var opts []queue.HandlerOption
	if at.by == "codec" {
		opts = append(opts, queue.DecodeWith(pausingCodec{pause: pause}))
	}
	if at.inTx {
		handleTx(t, d, q, "note", func(_ context.Context, _ HandlerTx, job queue.Job[int]) error {
			return begin(job.Info)
		}, opts...)
	} else {
		handle(t, q, "note", func(_ context.Context, job queue.Job[any]) error { return begin(job.Info) }, opts...)
	}
	task := queue.Task{Kind: "note", Args: at.args, MaxAttempts: map[bool]int{true: 1, false: 0}[at.last]}
	made := enqueueMany(t, q, slices.Repeat([]queue.Task{task}, jobs))
	if at.text != "" && !late {
		dialer.HookAt(at.text, pause)
	}
	stop := work(t, q, wo)
	suite.Until(t, "the queue is paused", func() bool { return paused.Load() || len(begun) > 0 })
	(&stranded{q: q, rest: made}).ready(t)
	d.Until(t, "SELECT count(*) FROM dblock_queue_claim", 0)
	d.Until(t, "SELECT count(*) FROM dblock_queue_job WHERE begun > attempt", 0)
	paused.Store(false)
	require.NoError(t, q.Resume(suite.Soon(t), ""))
	for range jobs {
		assert.Equal(t, 1, suite.Wait(t, begun, "a job that begins after the pause"))
	}
	d.empty(t)
	assert.NoError(t, stop())
}
