package queue

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/queue"
)

// The worker processes that tests kill are this test binary again.
const (
	workerDSN  = "DBLOCK_TEST_WORKER"
	workerKind = "DBLOCK_TEST_WORKER_KIND"
	workerCare = "DBLOCK_TEST_WORKER_CARE" // it says when it is elected to promote jobs
	workerExit = "DBLOCK_TEST_WORKER_EXIT" // the handler of job 3 ends the process once the others have begun
)

// Main does what a test has started this process for, and then never returns. Call it first in TestMain.
func (e Queue) Main() {
	dsn := os.Getenv(workerDSN)
	if dsn == "" {
		return
	}
	e.Kind = devdb.Kind(os.Getenv(workerKind))
	var err error
	if os.Getenv(workerPanics) != "" {
		err = e.workAmidPanics(dsn)
	} else if path := os.Getenv(workerLog); path != "" {
		if err = e.workAndWrite(dsn, path); err == nil {
			os.Exit(0)
		}
	} else {
		err = e.workUntilKilled(dsn)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
	}
	os.Exit(1)
}

// workUntilKilled takes jobs, says so, and never ends one.
func (e Queue) workUntilKilled(dsn string) error {
	o := queue.Options{TTL: time.Second}
	if os.Getenv(workerCare) != "" {
		o.Observer.Elected = func(duty string, is bool) { fmt.Println(duty, is) }
	}
	q, _, err := e.Open(context.Background(), dsn, o)
	if err != nil {
		return err
	}
	err = queue.Handle(q, "note", func(ctx context.Context, job queue.Job[int]) error {
		fmt.Println("began")
		if os.Getenv(workerExit) != "" && job.Args == 3 {
			suite.WaitToGoOn()
			os.Exit(3)
		}
		<-ctx.Done()
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	if err := e.handleAhead(q); err != nil {
		return err
	}
	err = e.HandleTx(q, "effect", func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
		if err := tx.Do(ctx, effectOf(job.Info)); err != nil {
			return err
		}
		fmt.Println("wrote")
		<-ctx.Done()
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	return q.Work(context.Background(), queue.WorkerOptions{Concurrency: 20, Rescue: -1})
}

func (d *env) startWorker(t *testing.T, env ...string) *suite.Child {
	t.Helper()
	cmd := exec.CommandContext(suite.Soon(t), os.Args[0])
	cmd.Env = append(append(os.Environ(), workerDSN+"="+d.dsn, workerKind+"="+string(d.e.Kind)), env...)
	return suite.StartChild(t, cmd)
}

func rescuesTheJobsOfTheKilled(t *testing.T, d *env) {
	const jobs = 20
	rescued := make(chan int, 10)
	q := d.open(t, queue.Options{Observer: queue.Observer{Rescued: func(ready, _ int) { rescued <- ready }}})
	tasks := make([]queue.Task, jobs)
	for i := range tasks {
		tasks[i] = queue.Task{Kind: "note", Args: i}
	}
	made, err := q.EnqueueMany(t.Context(), tasks)
	if err != nil {
		t.Fatal(err)
	}
	victim := d.startWorker(t)
	for range jobs {
		victim.Says(t, "began")
	}
	victim.Kill()
	killed := time.Now()
	var did once
	handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
		if job.Attempt != 2 {
			t.Errorf("attempt %d", job.Attempt)
		}
		did.did(job.ID)
		return nil
	})
	work(t, q, queue.WorkerOptions{Rescue: 100 * time.Millisecond})
	if n := wait(t, rescued, "the rescue"); n != jobs {
		t.Errorf("%d rescued", n)
	}
	t.Logf("rescued %v after the kill", time.Since(killed))
	d.empty(t)
	if err := did.check(made, true); err != nil {
		t.Error(err)
	}
}

func buriesWhatKillsItsWorkers(t *testing.T, d *env) {
	q := d.open(t, queue.Options{History: 1})
	enqueue(t, q, queue.Task{Kind: "note", Args: 1, MaxAttempts: 1})
	victim := d.startWorker(t)
	victim.Says(t, "began")
	victim.Kill()
	d.exec(t, "DELETE FROM dblock_member")
	if ready, dead, err := q.Rescue(t.Context()); err != nil || ready != 0 || dead != 1 {
		t.Errorf("rescued %d and %d, %v", ready, dead, err)
	}
	d.empty(t)
	if s := d.text(t, "SELECT last_error FROM dblock_queue_dead"); !strings.Contains(s, "worker is gone") {
		t.Errorf("%q", s)
	}
	if n := d.count(t, "SELECT attempt FROM dblock_queue_dead"); n != 1 {
		t.Errorf("%d attempts", n)
	}
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_history WHERE outcome = 3 AND attempt = 1"); n != 1 {
		t.Errorf("%d in history", n)
	}
}

// Connections that break before or after a statement, whichever: every job is done, nothing stays behind, and none is done twice, as its
// process lives and the doubts are cleared up.
func lostRepliesLoseNothing(t *testing.T, d *env) {
	dialer := new(faultconn.Dialer)
	var troubles, lost atomic.Int32
	q, closePool, err := d.e.OpenOn(t.Context(), d.dsn, dialer, queue.Options{TTL: 2 * time.Second, Observer: queue.Observer{
		Trouble: func(string, error) { troubles.Add(1) },
		Lost:    func(_ string, n int) { lost.Add(int32(n)) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer closePool()
	defer func() { _ = q.Close(suite.Soon(t)) }()
	var did once
	handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
		did.did(job.ID)
		if job.Args%3 == 0 && job.Attempt < 2 {
			return errBadDay
		}
		return nil
	})
	work(t, q, queue.WorkerOptions{Poll: 10 * time.Millisecond, Batch: 7, Concurrency: 4, Backoff: func(int, error) time.Duration { return 0 }})
	producer := d.open(t, queue.Options{})
	var all []queue.ID
	for n := range 45 {
		mode := faultconn.CutAfter
		if n%4 == 0 {
			mode = faultconn.CutBefore
		}
		dialer.Arm(n%9+1, mode, nil)
		all = append(all, enqueue(t, producer, queue.Task{Kind: "note", Args: n}, queue.Task{Kind: "note", Args: n})...)
		d.until(t, "SELECT CASE WHEN count(*) < 20 THEN 0 ELSE 1 END FROM dblock_queue_job", 0)
	}
	dialer.Disarm()
	d.empty(t)
	if err := did.check(all, false); err != nil {
		t.Error(err)
	}
	if lost.Load() > 0 {
		t.Errorf("%d were said to be lost", lost.Load())
	}
	if troubles.Load() == 0 {
		t.Error("nothing was cut")
	}
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_dead"); n != 0 {
		t.Errorf("%d are dead", n)
	}
}
