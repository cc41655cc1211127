package queue

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/queue"
)

// stranded is a worker that has claimed ahead, and whose handlers block.
type stranded struct {
	*holder
	q    *queue.Queue
	rest []queue.ID // jobs behind those that block
	did  once       // of them
}

// strand has a worker run many quick jobs, so that it claims ahead, and then block. Other jobs are
// behind these.
func (d *env) strand(t *testing.T) *stranded {
	t.Helper()
	const quick, handlers, rest = 600, 4, 40
	s := &stranded{q: d.open(t, queue.Options{}), holder: newHolder(t)}
	handle(t, s.q, "quick", nop)
	handle(t, s.q, "block", s.handle)
	handle(t, s.q, "rest", s.did.handle)
	tasks := slices.Concat(repeat(quick, queue.Task{Kind: "quick"}),
		repeat(handlers, queue.Task{Kind: "block", Priority: 1}), repeat(rest, queue.Task{Kind: "rest", Priority: 2}))
	s.rest = enqueueMany(t, s.q, tasks)[quick+handlers:]
	work(t, s.q, queue.WorkerOptions{Concurrency: handlers, Syncs: 1}) // two overtake each other
	s.has(t, handlers)
	return s
}

// ready waits until all jobs behind those that block are ready, in their order. They have had no
// attempt.
func (s *stranded) ready(t *testing.T) {
	t.Helper()
	suite.Until(t, "the jobs are ready in their order", func() bool {
		var order []queue.ID
		for _, r := range suite.Must(s.q.List(suite.Soon(t), queue.Filter{}))(t) {
			order = append(order, r.ID)
			assert.Zero(t, r.Attempts, "attempts of job %v", r.ID)
		}
		return slices.Equal(order, s.rest)
	})
	assert.Zero(t, s.did.done(), "jobs that began")
}

// Jobs that wait for handlers which block are handed back, and another process runs them meanwhile.
func (mainTests) HandsBackWhatIsStranded(t *testing.T, d *env) {
	s := d.strand(t)
	s.ready(t)
	other := d.open(t, queue.Options{})
	done := make(chan queue.ID, 1000)
	handle(t, other, "rest", func(_ context.Context, job queue.Job[int]) error {
		assert.Equal(t, 1, job.Attempt)
		done <- job.ID
		return nil
	})
	work(t, other, queue.WorkerOptions{})
	for range s.rest {
		suite.Wait(t, done, "job of a worker that blocks")
	}
	close(s.end)
	d.empty(t)
	assert.Zero(t, s.did.done()+len(done), "jobs that were done twice")
}

// Another process pauses the queue. A worker hands back the jobs that it has claimed and not begun.
// It begins none until another process resumes the queue.
func (mainTests) APauseReachesOtherProcesses(t *testing.T, d *env) {
	s := d.strand(t)
	other := d.open(t, queue.Options{})
	require.NoError(t, other.Pause(suite.Soon(t), ""))
	s.ready(t)
	close(s.end)
	d.Until(t, "SELECT count(*) FROM dblock_queue_claim", 0)
	s.rest = append(s.rest, enqueue(t, other, queue.Task{Kind: "rest", Args: -1, Priority: 2})...)
	s.ready(t)
	require.NoError(t, other.Resume(suite.Soon(t), ""))
	d.empty(t)
	s.did.exactly(t, s.rest)
}

var retriesAtOnce = queue.Backoff(func(int, error) time.Duration { return 0 })

// A process is taken for dead while jobs wait in it that it claimed ahead. When their last attempts
// are to begin, it is refused: others run them. (A claim that was on its way meanwhile may be the
// process's still. Its jobs are not run by others. On a busy machine, jobs that wait may have been
// handed back before: then only the job that is held is rescued.)
func (mainTests) ABeginningProvesItsClaim(t *testing.T, d *env) {
	const quick, jobs = 500, 50
	lost := make(chan int, jobs)
	zombie := d.open(t, queue.Options{TTL: time.Hour, Observer: queue.Observer{Lost: func(_ string, n int) { lost <- n }}})
	held := newHolder(t)
	var did once
	handle(t, zombie, "quick", nop)
	handle(t, zombie, "held", held.handle)
	handle(t, zombie, "note", did.handle)
	tasks := slices.Concat(repeat(quick, queue.Task{Kind: "quick"}), repeat(1, queue.Task{Kind: "held", Priority: 1}),
		repeat(jobs, queue.Task{Kind: "note", Priority: 2, MaxAttempts: 1}))
	made := enqueueMany(t, zombie, tasks)
	q := d.open(t, queue.Options{})
	stop := work(t, zombie, queue.WorkerOptions{Concurrency: 1, Syncs: 1, Rescue: -1, Promote: -1})
	held.has(t, 1)
	require.NoError(t, q.Pause(suite.Soon(t), "")) // the other process does not know of it yet
	d.evict(t)
	handle(t, q, "held", nop)
	handle(t, q, "quick", nop)
	handle(t, q, "note", did.handle)
	suite.Until(t, "the job that is held is rescued", func() bool {
		_, dead, err := q.Rescue(suite.Soon(t)) // it passes over a claim that the worker writes to
		require.NoError(t, err)
		require.Zero(t, dead)
		return suite.Must(q.Show(suite.Soon(t), made[quick]))(t).State != queue.JobClaimed
	})
	close(held.end)
	assert.Positive(t, suite.Wait(t, lost, "end that is refused"), "lost")
	assert.NoError(t, stop())
	d.rows(t, "job WHERE begun = attempt + 1", 0)
	require.NoError(t, q.Resume(suite.Soon(t), ""))
	work(t, q, queue.WorkerOptions{})
	d.empty(t)
	did.exactly(t, made[quick+1:])
}

// Processes die again and again with jobs that they claimed and did not begin. Of each job's
// attempts one is lost at most, and never the last; the others count from their beginnings. The
// control forgets that beginnings are recorded: then more are lost.
func (mainTests) AnAttemptCountsFromItsBeginning(t *testing.T, d *env) {
	const deaths, most = 4, 4
	q := d.open(t, queue.Options{})
	handle(t, q, "note", nop, retriesAtOnce)
	tasks := repeat(3, queue.Task{Kind: "note", MaxAttempts: most})
	tasks[1].Unique, tasks[2].Group = "u", "g"
	last := enqueue(t, q, queue.Task{Kind: "note", MaxAttempts: 1})[0]
	for range deaths {
		d.claimsForTheDead(t)
		rescue(t, q, 1, 0) // a job that never began never dies
	}
	cancel(t, q, last, queue.JobReady)
	enqueue(t, q, tasks...)
	attempts := func() int64 { return d.Count(t, "SELECT max(attempt) FROM dblock_queue_job") }
	for last := range int64(most - 1) { // deaths before a beginning, and one after it
		for range deaths {
			d.claimsForTheDead(t)
			rescue(t, q, len(tasks), 0)
		}
		assert.Equal(t, 1+last, attempts(), "attempts that count after %d beginnings", last)
		d.beginsAndDies(t, q, len(tasks), int(last)+2)
	}
	d.rows(t, fmt.Sprint("dead WHERE attempt = ", most), len(tasks))
	enqueue(t, q, tasks...)
	for range deaths {
		d.exec(t, "UPDATE dblock_queue_job SET begun = NULL")
		d.claimsForTheDead(t)
		rescue(t, q, len(tasks), 0)
	}
	assert.EqualValues(t, most-1, attempts(), "control: attempts that count")
}

// claimsForTheDead claims all ready jobs for a process that does not exist.
func (d *env) claimsForTheDead(t *testing.T) {
	t.Helper()
	d.exec(t, d.sql(`INSERT INTO dblock_queue_claim (claim_id, member_id, queue, job_ids)
			SELECT gen_random_uuid(), gen_random_uuid(), 'default', array_agg(job_id) FROM dblock_queue_ready`,
		`INSERT INTO dblock_queue_claim (member_id, claim_id, job_id, queue, priority, ready_at)
			SELECT 'a dead member ..', 'its one claim ..', job_id, queue, priority, ready_at FROM dblock_queue_ready`),
		"DELETE FROM dblock_queue_ready")
}

// beginsAndDies has another process begin all jobs, as the given attempt, and be taken for dead.
func (d *env) beginsAndDies(t *testing.T, q *queue.Queue, jobs, attempt int) {
	t.Helper()
	zombie, held := d.open(t, queue.Options{TTL: time.Hour}), newHolder(t)
	handle(t, zombie, "note", held.handle)
	stop := work(t, zombie, queue.WorkerOptions{Concurrency: jobs, Rescue: -1, Promote: -1})
	for _, job := range held.has(t, jobs) {
		assert.Equal(t, attempt, job.Attempt)
	}
	d.evict(t)
	again, dead, err := q.Rescue(suite.Soon(t))
	require.NoError(t, err)
	assert.Equal(t, jobs, again+dead, "rescued")
	require.NoError(t, q.Pause(suite.Soon(t), "")) // the zombie claims no more
	close(held.end)
	assert.NoError(t, stop())
	require.NoError(t, q.Resume(suite.Soon(t), ""))
}

// Handlers with transactions have all connections of the pool. Last attempts at other jobs wait for
// one: they are not recorded, and their time does not pass.
func (mainTests) ABeginningHasItsConnection(t *testing.T, d *env) {
	const jobs, conns, limit = 40, 2, time.Hour
	if d.Postgres() {
		d = d.as(suite.AppendQuery(d.DSN, fmt.Sprint("pool_max_conns=", conns)))
	}
	q, began, end := d.open(t, queue.Options{}), make(chan time.Time, jobs), make(chan struct{})
	handleTx(t, d, q, "note", func(ctx context.Context, _ HandlerTx, _ queue.Job[int]) error {
		deadline, _ := ctx.Deadline()
		began <- deadline
		<-end
		return nil
	}, queue.Timeout(limit))
	enqueue(t, q, repeat(jobs, queue.Task{Kind: "note", MaxAttempts: 1})...)
	work(t, q, queue.WorkerOptions{Concurrency: jobs})
	suite.Until(t, "each job that is recorded has begun", func() bool {
		recorded := d.Count(t, "SELECT count(*) FROM dblock_queue_job WHERE begun = attempt + 1")
		return recorded >= conns && recorded == int64(len(began))
	})
	calls, ended := len(began), time.Now()
	close(end)
	for n := range jobs {
		deadline := suite.Wait(t, began, "a job")
		if n >= calls && d.Postgres() {
			assert.False(t, deadline.Before(ended.Add(limit)), "the wait for a connection counts: %v", deadline.Sub(ended))
		}
	}
	d.empty(t)
}

// Another transaction has locked the row of a job whose last attempt is to begin. The last attempts
// of other jobs begin and end meanwhile. That of the locked job begins once the lock is released.
// Each is recorded before it begins.
func (mainTests) ALockedJobStopsNoBeginnings(t *testing.T, d *env) {
	const others = 20
	q, held := d.open(t, queue.Options{}), newHolder(t)
	handle(t, q, "note", held.handle)
	locked := enqueue(t, q, queue.Task{Kind: "note", Args: 0, MaxAttempts: 1})[0]
	tx := suite.Must(d.DB.DB.BeginTx(context.Background(), &sql.TxOptions{Isolation: sql.LevelReadCommitted}))(t)
	t.Cleanup(func() { _ = tx.Rollback() })
	suite.Must(tx.ExecContext(t.Context(), "SELECT job_id FROM dblock_queue_job FOR UPDATE"))(t)
	made := enqueue(t, q, repeat(others, queue.Task{Kind: "note", MaxAttempts: 1})...)
	work(t, q, queue.WorkerOptions{Concurrency: 2 * others})
	for _, job := range held.has(t, others) {
		assert.NotEqual(t, locked, job.ID, "the locked job has begun: it cannot be recorded")
	}
	d.rows(t, "job WHERE begun = attempt + 1", others)
	close(held.end)
	suite.Until(t, "the ends of the other jobs are recorded", func() bool { return d.standing(t, made) == 0 })
	assert.Empty(t, held.began, "more have begun")
	require.NoError(t, tx.Rollback())
	assert.Equal(t, locked, held.has(t, 1)[0].ID)
	d.empty(t)
}

// zombie is a process that has a job and was declared dead.
type zombie struct {
	*holder
	lost chan int // how many of its ends were refused
	next *holder  // the process that has the job now
}

// zombie has a worker begin the one job that there is. Then the worker is evicted, and another
// process begins the job. The two of around, if given, are called before and after that. In the end
// the zombie knows it.
func (d *env) zombie(t *testing.T, around ...func()) *zombie {
	t.Helper()
	z := &zombie{newHolder(t), make(chan int, 10), newHolder(t)}
	q := d.open(t, queue.Options{TTL: time.Second, Observer: queue.Observer{Lost: func(_ string, n int) { z.lost <- n }}})
	causes := make(chan error, 10)
	handle(t, q, "note", func(ctx context.Context, job queue.Job[int]) error {
		z.began <- job.Info
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return z.held(z.test)
	})
	enqueue(t, q, queue.Task{Kind: "note", Args: 1})
	work(t, q, queue.WorkerOptions{Concurrency: 1, Ahead: -1, Rescue: -1})
	z.has(t, 1)
	if len(around) > 0 {
		around[0]()
	}
	d.evict(t)
	other := d.open(t, queue.Options{})
	rescue(t, other, 1, 0)
	handle(t, other, "note", z.next.handle)
	work(t, other, queue.WorkerOptions{Rescue: -1}) // the control puts a claim back
	assert.Equal(t, 2, z.next.has(t, 1)[0].Attempt)
	if len(around) > 0 {
		around[1]()
	}
	assert.ErrorIs(t, suite.Wait(t, causes, "end of the zombie's context"), dblock.ErrLost)
	return z
}

// A zombie neither ends nor delays nor discards its job.
func (mainTests) AZombieFinishesNothing(t *testing.T, d *env) {
	each(t, d, map[string]error{
		"Done": nil, "Snoozed": queue.Snooze(time.Hour), "Discarded": queue.Discard(errBadDay), "Failed": errBadDay,
	}, func(t *testing.T, d *env, says error) {
		z := d.zombie(t)
		z.end <- says
		assert.Equal(t, 1, suite.Wait(t, z.lost, "refusal"))
		for table, want := range map[string]int{"job": 1, "scheduled": 0, "dead": 0, "ready": 0} {
			d.rows(t, table, want)
		}
		z.next.end <- nil
		d.empty(t)
	})
}

// The claim is still there, as if it had never been taken away: the zombie ends another process's
// job.
func (mainTests) ControlAZombieFinishes(t *testing.T, d *env) {
	z := d.zombie(t, func() { d.exec(t, "CREATE TABLE suite_claim AS SELECT * FROM dblock_queue_claim") },
		func() { d.exec(t, "INSERT INTO dblock_queue_claim SELECT * FROM suite_claim") })
	z.end <- nil
	d.Until(t, "SELECT count(*) FROM dblock_queue_job", 0)
	z.next.end <- nil
}

// A heartbeat keeps a job for longer than the TTL.
func (mainTests) TheLivingKeepTheirJobs(t *testing.T, d *env) {
	q, other, held := d.open(t, queue.Options{TTL: 5 * time.Second}), d.open(t, queue.Options{}), newHolder(t)
	handle(t, q, "note", held.obey)
	work(t, q, queue.WorkerOptions{Rescue: -1})
	enqueue(t, q, queue.Task{Kind: "note", Args: 1})
	held.has(t, 1)
	first := d.Count(t, "SELECT max(beat) FROM dblock_member")
	for d.Count(t, "SELECT max(beat) FROM dblock_member") < first+4 { // more than the TTL
		rescue(t, other, 0, 0)
		time.Sleep(100 * time.Millisecond)
	}
	held.end <- nil
	d.empty(t)
}

// A handler that ignores its timeout keeps its job, which no other process gets. Others are done
// meanwhile, and its result counts.
func (mainTests) AHandlerMayIgnoreItsTime(t *testing.T, d *env) {
	q, other := d.open(t, queue.Options{TTL: 5 * time.Second}), d.open(t, queue.Options{})
	late, end := make(chan error, 1), make(chan error)
	var did once
	handle(t, q, "note", func(ctx context.Context, job queue.Job[int]) error {
		did.did(job.ID)
		if job.Args > 0 {
			return nil
		}
		<-ctx.Done()
		late <- context.Cause(ctx)
		return <-end
	}, queue.Timeout(20*time.Millisecond))
	work(t, q, queue.WorkerOptions{Concurrency: 2})
	made := enqueue(t, q, queue.Task{Kind: "note", Args: 0})
	assert.ErrorIs(t, suite.Wait(t, late, "end of its time"), queue.ErrTimeout)
	for n := range 20 {
		made = append(made, enqueue(t, q, queue.Task{Kind: "note", Args: n + 1})...)
	}
	d.Until(t, "SELECT count(*) FROM dblock_queue_job", 1)
	rescue(t, other, 0, 0)
	close(end)
	d.empty(t)
	did.exactly(t, made)
	d.rows(t, "dead", 0)
}
