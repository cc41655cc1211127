package queue

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
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

// The worker processes that tests kill are this test binary again. The environment says what they
// do.
const (
	workerDSN  = "DBLOCK_TEST_WORKER"
	workerKind = "DBLOCK_TEST_WORKER_KIND"
	workerMode = "DBLOCK_TEST_WORKER_MODE"

	modeElected    = "elected"     // it prints when it is elected to promote jobs
	modeExit       = "exit"        // the handler of job 3 ends the process once the test says so
	modeHostPanics = "host panics" // the host's functions panic
	modeHostExits  = "host exits"  // or end their goroutines
	modeLog        = "log"         // it writes a log: see faults_worker.go
)

// Main does what a test has started this process for, and then never returns. Call it first in
// TestMain.
func (e Queue) Main() {
	dsn := os.Getenv(workerDSN)
	if dsn == "" {
		return
	}
	e.Kind = devdb.Kind(os.Getenv(workerKind))
	var err error
	switch mode := os.Getenv(workerMode); mode {
	case modeHostPanics, modeHostExits:
		err = e.workAmidPanics(dsn)
	case modeLog:
		if err = e.workAndWrite(dsn); err == nil {
			os.Exit(0)
		}
	default:
		err = e.workUntilKilled(dsn, mode)
	}
	fmt.Fprintln(os.Stderr, "worker:", err)
	os.Exit(1)
}

// workUntilKilled claims jobs, prints that, and never ends one.
func (e Queue) workUntilKilled(dsn, mode string) error {
	o := queue.Options{TTL: time.Second}
	if mode == modeElected {
		o.Observer.Elected = func(task string, is bool) { fmt.Println(task, is) }
	}
	q, _, err := e.Open(context.Background(), dsn, o)
	if err != nil {
		return err
	}
	err = errors.Join(queue.Handle(q, "note", func(ctx context.Context, job queue.Job[int]) error {
		fmt.Println("began")
		if mode == modeExit && job.Args == 3 {
			suite.WaitToGoOn()
			os.Exit(3)
		}
		<-ctx.Done()
		return ctx.Err()
	}), queue.Handle(q, quickKind, nop), queue.Handle(q, aheadKind, func(ctx context.Context, job queue.Job[int]) error {
		fmt.Println("ahead", job.Args, job.Attempt)
		<-ctx.Done()
		return ctx.Err()
	}), e.HandleTx(q, "effect", func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
		if err := tx.Do(ctx, effectOf(job.Info)); err != nil {
			return err
		}
		fmt.Println("wrote")
		<-ctx.Done()
		return ctx.Err()
	}))
	if err != nil {
		return err
	}
	return q.Work(context.Background(), queue.WorkerOptions{Concurrency: 20, Rescue: -1})
}

func (d *env) workerCommand(ctx context.Context, env ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(append(os.Environ(), workerDSN+"="+d.dsn, workerKind+"="+string(d.e.Kind)), env...)
	return cmd
}

// startWorker starts a worker process, in a mode if one is given.
func (d *env) startWorker(t *testing.T, mode ...string) *suite.Child {
	t.Helper()
	return suite.StartChild(t, d.workerCommand(suite.Soon(t), workerMode+"="+strings.Join(mode, "")))
}

// workerWith starts a worker process that has begun as many jobs.
func (d *env) workerWith(t *testing.T, jobs int, mode ...string) *suite.Child {
	t.Helper()
	victim := d.startWorker(t, mode...)
	for range jobs {
		victim.Says(t, "began")
	}
	return victim
}

// handleRest runs the jobs of a process that has ended. Each is in its second attempt.
func (o *once) handleRest(t *testing.T, q *queue.Queue) {
	t.Helper()
	handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
		assert.Equal(t, 2, job.Attempt, "attempt of job %d", job.Args)
		o.did(job.ID)
		return nil
	})
	work(t, q, queue.WorkerOptions{Rescue: 100 * time.Millisecond})
}

func rescuesTheJobsOfTheKilled(t *testing.T, d *env) {
	const jobs = 20
	rescued := make(chan int, 10)
	q := d.open(t, queue.Options{Observer: queue.Observer{Rescued: func(ready, _ int) { rescued <- ready }}})
	made := enqueueMany(t, q, repeat(jobs, queue.Task{Kind: "note"}))
	d.workerWith(t, jobs).Kill()
	var did once
	did.handleRest(t, q)
	assert.Equal(t, jobs, wait(t, rescued, "rescue"))
	d.empty(t)
	did.exactly(t, made)
}

func buriesWhatKillsItsWorkers(t *testing.T, d *env) {
	q := d.open(t, queue.Options{History: 1})
	d.killed(t, q, queue.Task{Kind: "note", Args: 1, MaxAttempts: 1})
	rescue(t, q, 0, 1)
	d.empty(t)
	d.rows(t, "dead WHERE attempt = 1 AND last_error LIKE '%worker is gone%'", 1)
	d.rows(t, "history WHERE outcome = 3 AND attempt = 1", 1)
}

// A handler ends its process. Its job, which had no other attempt, is dead. What was claimed with
// it runs elsewhere.
func anExitIsACrash(t *testing.T, d *env) {
	const jobs = 10
	q := d.open(t, queue.Options{})
	tasks := repeat(jobs, queue.Task{Kind: "note"})
	tasks[3].MaxAttempts = 1
	made := enqueueMany(t, q, tasks)
	victim := d.workerWith(t, jobs, modeExit)
	_ = victim.In.Close()
	assert.Error(t, victim.Wait())
	assert.Equal(t, 3, victim.ProcessState.ExitCode())
	var did once
	did.handleRest(t, q)
	d.empty(t)
	did.exactly(t, append(made[:3:3], made[4:]...))
	d.rows(t, "dead WHERE last_error LIKE '%worker is gone%'", 1)
}

// A handler that ignores its timeout keeps its job, which no other process gets. Others are done
// meanwhile, and its result counts.
func aHandlerMayIgnoreItsTime(t *testing.T, d *env) {
	q, other := d.open(t, queue.Options{TTL: time.Second}), d.open(t, queue.Options{})
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
	assert.ErrorIs(t, wait(t, late, "end of its time"), queue.ErrTimeout)
	for n := range 20 {
		made = append(made, enqueue(t, q, queue.Task{Kind: "note", Args: n + 1})...)
	}
	d.until(t, "SELECT count(*) FROM dblock_queue_job", 1)
	rescue(t, other, 0, 0)
	end <- nil
	d.empty(t)
	did.exactly(t, made)
	d.rows(t, "dead", 0)
}

// cutMode breaks most connections after a statement and every fourth before one.
func cutMode(n int) faultconn.Mode {
	if n%4 == 0 {
		return faultconn.CutBefore
	}
	return faultconn.CutAfter
}

// Connections break before or after whichever statement. Each job is done and nothing is left
// behind. None is done twice, as its process lives and finds out what became of each statement.
func lostRepliesLoseNothing(t *testing.T, d *env) {
	dialer := new(faultconn.Dialer)
	var troubles, lost atomic.Int32
	q := d.openOn(t, dialer, queue.Options{TTL: 2 * time.Second, Observer: queue.Observer{
		Trouble: func(string, error) { troubles.Add(1) },
		Lost:    func(_ string, n int) { lost.Add(int32(n)) },
	}})
	var did once
	handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
		did.did(job.ID)
		if job.Args%3 == 0 && job.Attempt < 2 {
			return errBadDay
		}
		return nil
	}, retriesAtOnce)
	work(t, q, queue.WorkerOptions{Poll: 10 * time.Millisecond, Batch: 7, Concurrency: 4})
	producer := d.open(t, queue.Options{})
	var all []queue.ID
	for n := range 45 {
		dialer.Arm(n%9+1, cutMode(n), nil)
		all = append(all, enqueue(t, producer, queue.Task{Kind: "note", Args: n}, queue.Task{Kind: "note", Args: n})...)
		d.until(t, "SELECT CASE WHEN count(*) < 20 THEN 0 ELSE 1 END FROM dblock_queue_job", 0)
	}
	dialer.Disarm()
	d.empty(t)
	require.NoError(t, did.check(all, false))
	assert.Zero(t, lost.Load(), "lost claims")
	assert.Positive(t, troubles.Load(), "cuts")
	d.rows(t, "dead", 0)
}

// Many jobs of one call take several messages. Wherever the connection is cut, all of them are
// enqueued, or none. A caller without an error has all, and an error that says that nothing was
// written is right.
func bulksSurviveLostReplies(t *testing.T, d *env) {
	const each = 1200
	dialer := new(faultconn.Dialer)
	q := d.openOn(t, dialer, queue.Options{})
	tasks := repeat(each, queue.Task{Kind: "note"})
	outcomes := make(map[int64]int)
	for _, mode := range []faultconn.Mode{faultconn.CutBefore, faultconn.CutAfter} {
		for k, struck := 1, true; struck && k < suite.CutPoints; k++ {
			name := fmt.Sprintf("%v %d", mode, k)
			for i := range tasks {
				tasks[i].Queue, tasks[i].Delay = name, time.Duration(1-min(1, i%3))*time.Hour
			}
			dialer.Arm(k, mode, nil)
			made, err := q.EnqueueMany(suite.Soon(t), tasks)
			struck = dialer.Disarm()
			in := fmt.Sprintf(" WHERE queue = '%s'", name)
			jobs := d.count(t, "SELECT count(*) FROM dblock_queue_job"+in)
			d.rows(t, "ready"+in, int(jobs/3*2))
			d.rows(t, "scheduled"+in, int(jobs/3))
			if err == nil {
				assert.Len(t, made, int(jobs), name)
			}
			if jobs != 0 && jobs != each || err == nil && jobs == 0 || suite.Definite(err) && jobs != 0 {
				t.Errorf("%s: %d of %d jobs, and the error is %v", name, jobs, each, err)
			}
			outcomes[jobs]++
		}
	}
	t.Log(outcomes)
	assert.Positive(t, outcomes[0], "calls that enqueued nothing")
	assert.Positive(t, outcomes[each], "calls that enqueued all")
}
