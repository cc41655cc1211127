package queue

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/queue"
)

// killed enqueues tasks, whose jobs a process begins that is then declared dead. It is frozen until
// the test ends.
func (d *env) killed(t *testing.T, q *queue.Queue, tasks ...queue.Task) []queue.ID {
	t.Helper()
	made := enqueueMany(t, q, tasks)
	gone, h := d.open(t, queue.Options{TTL: time.Hour}), newHolder(t)
	handle(t, gone, "note", h.handle)
	work(t, gone, queue.WorkerOptions{Concurrency: len(tasks), Ahead: -1, Promote: -1, Rescue: -1})
	h.has(t, len(tasks))
	d.evict(t)
	return made
}

// rescues is a worker that rescues jobs often.
var rescues = queue.WorkerOptions{Rescue: 100 * time.Millisecond}

// Jobs had their last attempt with a process that was killed. The rows of a group and of a unique
// key are locked, and the count of another group is wrong. All other jobs are dead, and these once
// they can be.
func (mainTests) ARescuePassesLockedKeys(t *testing.T, d *env) {
	q := d.open(t, queue.Options{Timeout: 5 * time.Second})
	tasks := []queue.Task{{Group: "locked"}, {Unique: "locked"}, {Group: "wrong"}}
	for n := range 4 {
		tasks = append(tasks, queue.Task{Group: fmt.Sprint(n)}, queue.Task{Unique: fmt.Sprint(n)}, queue.Task{})
	}
	for i := range tasks {
		tasks[i].Kind, tasks[i].MaxAttempts = "note", 1
	}
	tasks = append(tasks, queue.Task{Kind: "note", Group: "again"})
	made := d.killed(t, q, tasks...)
	release := d.lock(t, lockedGroup, lockedKey)
	d.exec(t, "UPDATE dblock_queue_key SET taken = 0 WHERE queue = 'default' AND group_key = 'wrong'")
	rescue(t, q, 1, 12)
	assert.Equal(t, 3, d.standing(t, made[:3]))
	rescue(t, q, 0, 0)
	release()
	rescue(t, q, 0, 2)
	d.exec(t, "UPDATE dblock_queue_key SET taken = 1 WHERE queue = 'default' AND group_key = 'wrong'")
	var did once
	handle(t, q, "note", did.handle)
	work(t, q, rescues)
	d.empty(t)
	did.exactly(t, made[len(made)-1:])
	d.rows(t, "dead", 15)
}

// The server refuses to reschedule one job of a claim, and not the others. The claim keeps the
// former, and the next rescue moves it. They wait as jobs that failed.
func (mainTests) ARescueThatFailsKeepsItsClaims(t *testing.T, d *env) {
	const jobs = 10
	q, asked, tasks := d.open(t, queue.Options{}), make(chan int, 2*jobs), everyOtherDies(jobs)
	handle(t, q, "note", nop, queue.Backoff(func(attempt int, _ error) time.Duration {
		asked <- attempt
		return time.Hour
	}))
	tasks[1].Priority = 5
	d.killed(t, q, tasks...)
	drop := d.Trigger(t, "AFTER INSERT", "dblock_queue_scheduled", "NEW.priority = 5", suite.Raise(d.Kind, "45000", "not now"))
	again, dead, err := q.Rescue(suite.Soon(t))
	assert.Error(t, err)
	assert.Equal(t, []int{jobs/2 - 1, jobs / 2}, []int{again, dead})
	drop()
	rescue(t, q, 1, 0)
	d.rows(t, "ready", 0)
	d.rows(t, "scheduled", jobs/2)
	d.rows(t, "job WHERE attempt = 1", jobs/2)
	for range jobs / 2 {
		assert.Equal(t, 1, suite.Wait(t, asked, "the backoff"))
	}
	d.Until(t, "SELECT count(*) FROM dblock_queue_claim", 0)
}

// everyOtherDies makes tasks. Every other one has a unique key and one attempt.
func everyOtherDies(n int) []queue.Task {
	tasks := repeat(n, queue.Task{Kind: "note"})
	for i := 0; i < n; i += 2 {
		tasks[i].Unique, tasks[i].MaxAttempts = fmt.Sprint(i), 1
	}
	return tasks
}

// slow has each row of an event take 4 ms.
func (d *env) slow(t *testing.T, event, table string) {
	t.Helper()
	d.Trigger(t, "AFTER "+event, table, "1 = 1", d.sql("PERFORM pg_sleep(0.004)", "DO SLEEP(0.004)"))
}

// Options.Timeout cuts off the statements of a rescue, since the server is slow. Smaller statements
// rescue all jobs.
func (faultTests) ASlowServerRescuesStepByStep(t *testing.T, d *env) {
	const jobs = 200
	d.killed(t, d.open(t, queue.Options{}), everyOtherDies(jobs)...)
	d.slow(t, "INSERT", "dblock_queue_scheduled")
	d.slow(t, "INSERT", "dblock_queue_dead")
	q := d.open(t, queue.Options{Timeout: 300 * time.Millisecond})
	handle(t, q, "note", nop, queue.Backoff(func(int, error) time.Duration { return time.Hour }))
	suite.Until(t, "all jobs are rescued", func() bool {
		_, _, err := q.Rescue(suite.Soon(t))
		t.Log(err)
		return d.Count(t, "SELECT count(*) FROM dblock_queue_claim") == 0
	})
	for table, want := range map[string]int{
		"scheduled": jobs / 2, "dead": jobs / 2, "job": jobs / 2, "unique": 0, "ready": 0,
	} {
		d.rows(t, table, want)
	}
}

func (faultTests) ASlowServerPrunesStepByStep(t *testing.T, d *env) {
	q := d.open(t, queue.Options{Timeout: 300 * time.Millisecond, History: 1})
	d.overdue(t, 200, "")
	d.exec(t, "INSERT INTO dblock_queue_history "+
		"(day, job_id, queue, kind, priority, attempt, outcome, enqueued_at) "+
		"SELECT '2020-01-01', s.job_id, s.queue, 'note', 0, 1, 1, s.run_at FROM dblock_queue_scheduled s")
	d.slow(t, "DELETE", "dblock_queue_history")
	suite.Until(t, "old history is deleted", func() bool {
		t.Log(q.PruneHistory(suite.Soon(t)))
		return d.Count(t, "SELECT count(*) FROM dblock_queue_history") == 0
	})
}

// A worker that stops hands back jobs that have not begun, and jobs that it had to interrupt.
// Neither costs an attempt.
func (mainTests) HandsBackWhatWasNotBegun(t *testing.T, d *env) {
	const jobs, handlers = 20, 2
	q, h := d.open(t, queue.Options{}), newHolder(t)
	stopped := make(chan error, jobs)
	handle(t, q, "note", func(ctx context.Context, job queue.Job[int]) error {
		err := h.obey(ctx, job)
		if err != nil {
			stopped <- err
		}
		return err
	})
	enqueueMany(t, q, repeat(jobs, queue.Task{Kind: "note"}))
	stop := work(t, q, queue.WorkerOptions{Concurrency: handlers, Ahead: 10, Grace: 100 * time.Millisecond})
	h.has(t, handlers)
	h.end <- nil
	h.has(t, 1)
	assert.NoError(t, stop())
	for range handlers {
		assert.ErrorIs(t, suite.Wait(t, stopped, "a job that is interrupted"), queue.ErrStopped)
	}
	for table, want := range map[string]int{
		"job": jobs - 1, "ready": jobs - 1, "claim": 0, "job WHERE attempt > 0": 0, "scheduled": 0,
	} {
		d.rows(t, table, want)
	}
	var did once
	d.process(t, queue.Options{}, queue.WorkerOptions{}, did.handle)
	d.empty(t)
	assert.Equal(t, jobs-1, did.done())
}

// Close returns soon after its context has ended, also while a worker runs. The process leaves in
// the background. Without a bound Close would wait for the TTL, an hour.
func (faultTests) AQueueClosesOnAFrozenServer(t *testing.T, d *env) {
	server, db := suite.OwnServer(t, d.Kind)
	if server == nil {
		return // it was given, and may serve others
	}
	d = &env{db, d.e}
	for _, working := range []bool{true, false} {
		q, done := d.open(t, queue.Options{TTL: time.Hour}), make(chan int, 1)
		handle(t, q, "note", record(done))
		stop := work(t, q, queue.WorkerOptions{})
		enqueue(t, q, queue.Task{Kind: "note", Args: 1})
		suite.Wait(t, done, "the job")
		d.empty(t)
		if !working {
			require.NoError(t, stop())
		}
		require.NoError(t, server.Freeze())
		closed := make(chan error, 1)
		go func() { closed <- suite.CloseWithin(q, suite.FrozenDeadline) }()
		select {
		case err := <-closed:
			assert.Error(t, err)
		case <-time.After(30 * time.Second):
			assert.Fail(t, "it is not closed", "with a worker: %t", working)
		}
		require.NoError(t, server.Thaw())
		_ = stop()
		d.Until(t, suite.Members, 0)
	}
}

func (mainTests) LeavesThoseWhoIgnoreTheirEnd(t *testing.T, d *env) {
	q, h := d.open(t, queue.Options{}), newHolder(t)
	handle(t, q, "note", h.handle)
	stop := work(t, q, queue.WorkerOptions{Grace: -1})
	enqueue(t, q, queue.Task{Kind: "note", Args: 1})
	h.has(t, 1)
	assert.ErrorIs(t, stop(), queue.ErrStillRunning)
	assert.NoError(t, suite.CloseWithin(q, time.Minute))
	rescue(t, d.open(t, queue.Options{}), 1, 0)
	h.end <- nil
}
