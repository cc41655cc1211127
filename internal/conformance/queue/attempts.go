package queue

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
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
	s := &stranded{q: d.open(t, queue.Options{}), holder: newHolder()}
	handle(t, s.q, "quick", nop)
	handle(t, s.q, "block", s.handle)
	handle(t, s.q, "rest", s.did.handle)
	tasks := slices.Concat(repeat(quick, queue.Task{Kind: "quick"}),
		repeat(handlers, queue.Task{Kind: "block", Priority: 1}), repeat(rest, queue.Task{Kind: "rest", Priority: 2}))
	s.rest = enqueueMany(t, s.q, tasks)[quick+handlers:]
	work(t, s.q, queue.WorkerOptions{Concurrency: handlers, Exchanges: 1}) // two overtake each other
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
func handsBackWhatIsStranded(t *testing.T, d *env) {
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
		wait(t, done, "job of a worker that blocks")
	}
	close(s.end)
	d.empty(t)
	assert.Zero(t, s.did.done()+len(done), "jobs that were done twice")
}

// Jobs of a paused queue that have not begun are handed back, at once in the process that pauses
// it.
func handsBackWhatIsPaused(t *testing.T, d *env) {
	s := d.strand(t)
	require.NoError(t, s.q.Pause(suite.Soon(t), ""))
	close(s.end)
	s.ready(t)
	d.until(t, "SELECT count(*) FROM dblock_queue_claim", 0)
	require.NoError(t, s.q.Resume(suite.Soon(t), ""))
	d.empty(t)
	s.did.exactly(t, s.rest)
}

// Another process pauses the queue. A worker hands back the jobs that it has claimed and not begun.
// It begins none until another process resumes the queue.
func aPauseReachesOtherProcesses(t *testing.T, d *env) {
	s := d.strand(t)
	other := d.open(t, queue.Options{})
	require.NoError(t, other.Pause(suite.Soon(t), ""))
	s.ready(t)
	close(s.end)
	d.until(t, "SELECT count(*) FROM dblock_queue_claim", 0)
	s.rest = append(s.rest, enqueue(t, other, queue.Task{Kind: "rest", Args: -1, Priority: 2})...)
	s.ready(t)
	require.NoError(t, other.Resume(suite.Soon(t), ""))
	d.empty(t)
	s.did.exactly(t, s.rest)
}

const (
	quickKind = "quick" // its jobs end at once, so that the process claims ahead
	aheadKind = "ahead" // its jobs never end: each prints its number and its attempt
)

var retriesAtOnce = queue.Backoff(func(int, error) time.Duration { return 0 })

// A killed process had begun some jobs, and had claimed others ahead. A job dies of that if its
// last attempt had begun, and never runs again. All others run.
func aJobThatNeverBeganNeverDies(t *testing.T, d *env) {
	const jobs, handlers, victims = 600, 20, 8
	q := d.open(t, queue.Options{})
	var mu sync.Mutex
	last, ran := make([]int, jobs), make([]int, jobs) // how often the last attempt began: in killed processes, and here
	handle(t, q, quickKind, nop, retriesAtOnce)
	handle(t, q, aheadKind, func(_ context.Context, job queue.Job[int]) error {
		mu.Lock()
		defer mu.Unlock()
		ran[job.Args]++
		return nil
	}, retriesAtOnce)
	tasks := repeat(jobs, queue.Task{Kind: aheadKind})
	for i := range tasks {
		tasks[i].MaxAttempts = 1 + i%2
		if i%10 >= 8 {
			tasks[i].Unique = fmt.Sprint(i)
		}
	}
	enqueueMany(t, q, tasks)
	kills := 0
	for n := 0; kills < 3 && n < victims; n++ {
		enqueueMany(t, q, repeat(2000, queue.Task{Kind: quickKind, Priority: -1}))
		victim := d.startWorker(t)
		for range handlers {
			var i, attempt int
			require.True(t, victim.Lines.Scan(), "the process has ended")
			_, err := fmt.Sscanf(victim.Lines.Text(), "ahead %d %d", &i, &attempt)
			require.NoError(t, err, victim.Lines.Text())
			if attempt == tasks[i].MaxAttempts {
				last[i]++
			}
		}
		stats := suite.Must(q.Stats(suite.Soon(t)))(t)
		victim.Kill()
		d.evict(t)
		_, _, err := q.Rescue(suite.Soon(t))
		require.NoError(t, err)
		if stats.Queues[0].Claimed > handlers {
			kills++
		}
	}
	work(t, q, queue.WorkerOptions{})
	d.empty(t)
	mu.Lock()
	defer mu.Unlock()
	begun, wrong := 0, []int(nil)
	for i := range tasks {
		begun += last[i]
		if last[i]+ran[i] != 1 {
			wrong = append(wrong, i)
		}
	}
	assert.Empty(t, wrong, "jobs whose last attempt did not begin once")
	d.rows(t, "dead", begun)
	assert.Positive(t, kills, "processes that had claimed ahead")
}

// A process is taken for dead while jobs wait in it that it claimed ahead. When their last attempts
// are to begin, it is refused: others run them. (A claim that was on its way meanwhile may be the
// process's still. Its jobs are not run by others. On a busy machine, jobs that wait may have been
// handed back before: then only the job that is held is rescued.)
func aBeginningProvesItsClaim(t *testing.T, d *env) {
	const quick, jobs = 500, 50
	lost := make(chan int, jobs)
	zombie := d.open(t, queue.Options{TTL: time.Hour, Observer: queue.Observer{Lost: func(_ string, n int) { lost <- n }}})
	held := newHolder()
	var did once
	handle(t, zombie, quickKind, nop)
	handle(t, zombie, "held", held.handle)
	handle(t, zombie, "note", did.handle)
	tasks := slices.Concat(repeat(quick, queue.Task{Kind: quickKind}), repeat(1, queue.Task{Kind: "held", Priority: 1}),
		repeat(jobs, queue.Task{Kind: "note", Priority: 2, MaxAttempts: 1}))
	made := enqueueMany(t, zombie, tasks)
	q := d.open(t, queue.Options{})
	stop := work(t, zombie, queue.WorkerOptions{Concurrency: 1, Exchanges: 1, Rescue: -1, Promote: -1})
	held.has(t, 1)
	require.NoError(t, q.Pause(suite.Soon(t), "")) // the other process does not know of it yet
	d.evict(t)
	handle(t, q, "held", nop)
	handle(t, q, quickKind, nop)
	handle(t, q, "note", did.handle)
	suite.Until(t, "the job that is held is rescued", func() bool {
		_, dead, err := q.Rescue(suite.Soon(t)) // it passes over a claim that the worker writes to
		require.NoError(t, err)
		require.Zero(t, dead)
		return suite.Must(q.Show(suite.Soon(t), made[quick]))(t).State != queue.Claimed
	})
	close(held.end)
	assert.Positive(t, wait(t, lost, "end that is refused"), "lost")
	assert.NoError(t, stop())
	d.rows(t, "job WHERE begun = attempt + 1", 0)
	require.NoError(t, q.Resume(suite.Soon(t), ""))
	work(t, q, queue.WorkerOptions{})
	d.empty(t)
	did.exactly(t, made[quick+1:])
}

// Processes die again and again with jobs that they claimed and did not begin. Of each job's
// attempts one is lost at most; the others count from their beginnings. The control forgets that
// beginnings are recorded: then more are lost.
func anAttemptCountsFromItsBeginning(t *testing.T, d *env) {
	const deaths, most = 4, 4
	q := d.open(t, queue.Options{})
	handle(t, q, "note", nop, retriesAtOnce)
	tasks := repeat(3, queue.Task{Kind: "note", MaxAttempts: most})
	tasks[1].Unique, tasks[2].Group = "u", "g"
	enqueue(t, q, tasks...)
	attempts := func() int64 { return d.count(t, "SELECT max(attempt) FROM dblock_queue_job") }
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
	zombie, held := d.open(t, queue.Options{TTL: time.Hour}), newHolder()
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

// Another transaction has locked the row of a job whose last attempt is to begin. The last attempts
// of other jobs begin and end meanwhile. That of the locked job begins once the lock is released.
// Each is recorded before it begins.
func aLockedJobStopsNoBeginnings(t *testing.T, d *env) {
	const others = 20
	q, held := d.open(t, queue.Options{}), newHolder()
	handle(t, q, "note", held.handle)
	locked := enqueue(t, q, queue.Task{Kind: "note", Args: 0, MaxAttempts: 1})[0]
	tx := suite.Must(d.db.BeginTx(context.Background(), &sql.TxOptions{Isolation: sql.LevelReadCommitted}))(t)
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

// evictedWorker is a process that has a job, and that the others take for dead.
type evictedWorker struct {
	lost   chan int   // how many of its ends were refused
	causes chan error // why its handlers' contexts ended
	thaw   chan error // what its handler returns
	next   *holder    // the process that has the job now
}

// evicted has a worker begin the one job that there is. Then the worker is evicted, and
// another process begins the job. The two of around, if given, are called before and after that. In
// the end the zombie knows it.
func (d *env) evicted(t *testing.T, around ...func()) *evictedWorker {
	t.Helper()
	z := &evictedWorker{lost: make(chan int, 10), causes: make(chan error, 10), thaw: make(chan error), next: newHolder()}
	q := d.open(t, queue.Options{TTL: time.Second, Observer: queue.Observer{Lost: func(_ string, n int) { z.lost <- n }}})
	began := make(chan queue.ID, 1)
	handle(t, q, "note", func(ctx context.Context, job queue.Job[int]) error {
		began <- job.ID
		<-ctx.Done()
		z.causes <- context.Cause(ctx)
		return <-z.thaw
	})
	enqueue(t, q, queue.Task{Kind: "note", Args: 1})
	work(t, q, queue.WorkerOptions{Concurrency: 1, Ahead: -1, Rescue: -1})
	wait(t, began, "job")
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
	assert.ErrorIs(t, wait(t, z.causes, "end of the zombie's context"), dblock.ErrLost)
	return z
}

func aZombieFinishesNothing(t *testing.T, d *env) {
	z := d.evicted(t)
	z.thaw <- nil
	assert.Equal(t, 1, wait(t, z.lost, "refusal"))
	d.rows(t, "job", 1)
	z.next.end <- nil
	d.empty(t)
}

// The claim is still there, as if it had never been taken away: the zombie ends another process's
// job.
func controlAZombieFinishes(t *testing.T, d *env) {
	z := d.evicted(t, func() { d.exec(t, "CREATE TABLE suite_claim AS SELECT * FROM dblock_queue_claim") },
		func() { d.exec(t, "INSERT INTO dblock_queue_claim SELECT * FROM suite_claim") })
	z.thaw <- nil
	d.until(t, "SELECT count(*) FROM dblock_queue_job", 0)
	z.next.end <- nil
}

// A zombie neither delays nor buries the job that failed in it.
func aZombieMovesNothing(t *testing.T, d *env) {
	for what, says := range map[string]error{
		"Snoozed": queue.Snooze(time.Hour), "Discarded": queue.Discard(errBadDay), "Failed": errBadDay,
	} {
		t.Run(what, func(t *testing.T) {
			d := d.e.env(t)
			z := d.evicted(t)
			z.thaw <- says
			assert.Equal(t, 1, wait(t, z.lost, "refusal"))
			for _, table := range []string{"scheduled", "dead", "ready"} {
				d.rows(t, table, 0)
			}
			z.next.end <- nil
			d.empty(t)
		})
	}
}

// A heartbeat keeps a job for longer than the TTL.
func theLivingKeepTheirJobs(t *testing.T, d *env) {
	q, other, held := d.open(t, queue.Options{TTL: time.Second}), d.open(t, queue.Options{}), newHolder()
	handle(t, q, "note", held.obey)
	work(t, q, queue.WorkerOptions{Rescue: -1})
	enqueue(t, q, queue.Task{Kind: "note", Args: 1})
	held.has(t, 1)
	first := d.count(t, "SELECT max(beat) FROM dblock_member")
	for d.count(t, "SELECT max(beat) FROM dblock_member") < first+5 { // nearly two TTLs
		rescue(t, other, 0, 0)
		time.Sleep(10 * time.Millisecond)
	}
	held.end <- nil
	d.empty(t)
}
