package queue

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/queue"
)

// A job that was committed late stands before jobs that were claimed long ago. It is found although
// there are always more later jobs than a claim takes.
func findsWhatWasCommittedLate(t *testing.T, d *env) {
	d.findsLateJobs(t, 1, queue.WorkerOptions{Concurrency: 2, Batch: 2, Ahead: -1, Exchanges: 1})
}

func findsLateJobsBesideABacklog(t *testing.T, d *env) {
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
		txs[i] = d.openTx(t)
		suite.Must(d.e.EnqueueTx(t.Context(), q, txs[i], queue.Task{Kind: "late", Args: i}))(t)
	}
	const backlog = 1000 // more than the worker has at a time
	enqueueMany(t, q, repeat(backlog, queue.Task{Kind: "backlog"}))
	defer ended.Store(true)
	work(t, q, o)
	for _, tx := range txs {
		for range backlog / 10 {
			wait(t, begun, "a job of the backlog")
		}
		require.NoError(t, tx.Commit())
	}
	for range late {
		wait(t, found, "a job that was committed late")
	}
	ended.Store(true)
	d.empty(t)
}

// A claim reaches the server, or commits, after its worker has looked for it. The worker looks
// again, so that its jobs do not wait for the heartbeat after 20 minutes. Each claim is struck at
// another call.
func findsAClaimThatComesLate(t *testing.T, d *env) {
	points := 8
	if d.e.Kind != devdb.Postgres {
		points = 20
	}
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
	tx := d.lock(t, "dblock_queue_ready")
	dialer, struck, done := new(faultconn.Dialer), make(chan struct{}, 100), make(chan int)
	o := queue.Options{TTL: time.Hour, Timeout: time.Second}
	o.Observer.Trouble = func(string, error) { struck <- struct{}{} }
	q, closePool, err := d.e.OpenOn(t.Context(), d.dsn, dialer, o)
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
	require.NoError(t, tx.Rollback())
	dialer.Release()
	assert.Equal(t, k, wait(t, done, fmt.Sprintf("job whose claim was struck at call %d", k)))
	dialer.Disarm()
	assert.NoError(t, stop())
	_ = closeIn(q, time.Minute) // it may be struck, too
	dialer.Release()
	closePool()
}

// A claim is recorded for a living worker when no statement of the claim is under way any more. The
// worker finds it with a heartbeat, and the jobs run.
func findsAClaimThatItDoesNotKnow(t *testing.T, d *env) {
	var did once
	q, h := d.open(t, queue.Options{TTL: time.Second}), newHolder()
	handle(t, q, "first", h.handle)
	handle(t, q, "note", did.handle)
	stop := work(t, q, queue.WorkerOptions{Concurrency: 1, Ahead: -1})
	enqueue(t, q, queue.Task{Kind: "first", Args: 0})
	h.has(t, 1)
	all := enqueue(t, q, repeat(2, queue.Task{Kind: "note"})...)
	d.claimAll(t)
	close(h.end)
	d.empty(t)
	did.exactly(t, all)
	assert.NoError(t, stop())
}

// claimAll records one more claim of the process that has one: of all jobs that are ready.
func (d *env) claimAll(t *testing.T) {
	t.Helper()
	claim := `INSERT INTO dblock_queue_claim (member_id, claim_id, job_id, queue, priority, ready_at)
		SELECT c.member_id, 'a claim 16 bytes', r.job_id, r.queue, r.priority, r.ready_at
		FROM dblock_queue_claim c CROSS JOIN dblock_queue_ready r`
	if d.e.Kind == devdb.Postgres {
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
func recordsWhatIsLeftAfterWork(t *testing.T, d *env) {
	const jobs = 3
	enqueueMany(t, d.open(t, queue.Options{}), repeat(jobs, queue.Task{Kind: "note"}))
	q, h := d.open(t, queue.Options{Timeout: 300 * time.Millisecond}), newHolder()
	handle(t, q, "note", h.handle)
	stop := work(t, q, queue.WorkerOptions{Concurrency: jobs, Promote: -1, Rescue: -1})
	h.has(t, jobs)
	tx := d.lock(t, "dblock_queue_claim", "dblock_queue_job")
	close(h.end)
	assert.ErrorIs(t, stop(), queue.ErrNotRecorded)
	require.NoError(t, tx.Rollback())
	d.empty(t)
	assert.Empty(t, h.began, "runs once more")
}

// The payloads of the jobs take longer to read than Timeout. Each job runs once, with its payload.
func payloadsMayTakeLongerThanTimeout(t *testing.T, d *env) {
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
