package queue

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/queue"
)

const (
	quickKind = "quick" // its jobs end at once, so that the process claims ahead
	aheadKind = "ahead" // its jobs never end: each says its number and its attempt
)

// handleAhead registers the handlers of a process that is killed with jobs that it claimed ahead.
func (e Queue) handleAhead(q *queue.Queue) error {
	if err := queue.Handle(q, quickKind, func(context.Context, queue.Job[int]) error { return nil }); err != nil {
		return err
	}
	return queue.Handle(q, aheadKind, func(ctx context.Context, job queue.Job[int]) error {
		fmt.Println("ahead", job.Args, job.Attempt)
		<-ctx.Done()
		return ctx.Err()
	})
}

// A killed process had begun some jobs, and had claimed others ahead. A job dies of that if its last attempt had begun, and is never run
// again. All others run.
func aJobThatNeverBeganNeverDies(t *testing.T, d *env) {
	const jobs, handlers, victims = 600, 20, 8
	q := d.open(t, queue.Options{})
	atOnce := queue.Backoff(func(int, error) time.Duration { return 0 })
	var mu sync.Mutex
	last, ran := make([]int, jobs), make([]int, jobs) // how often the last attempt has begun: with the killed, and here
	handle(t, q, quickKind, func(context.Context, queue.Job[int]) error { return nil }, atOnce)
	handle(t, q, aheadKind, func(_ context.Context, job queue.Job[int]) error {
		mu.Lock()
		defer mu.Unlock()
		ran[job.Args]++
		return nil
	}, atOnce)
	tasks := make([]queue.Task, jobs)
	for i := range tasks {
		tasks[i] = queue.Task{Kind: aheadKind, Args: i, MaxAttempts: 1 + i%2}
		if i%10 >= 8 {
			tasks[i].Unique = fmt.Sprint(i)
		}
	}
	if _, err := q.EnqueueMany(suite.Soon(t), tasks); err != nil {
		t.Fatal(err)
	}
	kills := 0
	for n := 0; kills < 3 && n < victims; n++ {
		quick := make([]queue.Task, 2000)
		for i := range quick {
			quick[i] = queue.Task{Kind: quickKind, Args: i, Priority: -1}
		}
		if _, err := q.EnqueueMany(suite.Soon(t), quick); err != nil {
			t.Fatal(err)
		}
		victim := d.startWorker(t)
		for range handlers {
			var i, attempt int
			if !victim.Lines.Scan() {
				t.Fatal("the process has ended")
			}
			if _, err := fmt.Sscanf(victim.Lines.Text(), "ahead %d %d", &i, &attempt); err != nil {
				t.Fatalf("the process said %q: %v", victim.Lines.Text(), err)
			}
			if attempt == tasks[i].MaxAttempts {
				last[i]++
			}
		}
		s, err := q.Stats(suite.Soon(t))
		if err != nil {
			t.Fatal(err)
		}
		victim.Kill()
		d.exec(t, "DELETE FROM dblock_member")
		again, dead, err := q.Rescue(suite.Soon(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v: %d again, %d dead", s.Queues, again, dead)
		if s.Queues[0].Claimed > handlers {
			kills++
		}
	}
	work(t, q, queue.WorkerOptions{})
	d.empty(t)
	mu.Lock()
	defer mu.Unlock()
	unbegun, twice, begun := 0, 0, 0
	for i := range tasks {
		begun += last[i]
		switch {
		case last[i]+ran[i] == 0:
			unbegun++
		case last[i]+ran[i] > 1:
			twice++
		}
	}
	if dead := d.count(t, "SELECT count(*) FROM dblock_queue_dead"); unbegun+twice > 0 || int(dead) != begun {
		t.Errorf("%d jobs are dead, the last attempt of %d had begun with the killed; that of %d never began, that of %d began twice", dead, begun, unbegun, twice)
	}
	if kills == 0 {
		t.Error("no process had claimed ahead")
	}
}

// A process is taken for dead while jobs wait in it that it claimed ahead. When their last attempts are to begin, it is refused: others run
// them. (A claim that was on its way meanwhile may be the process's still. Its jobs are not run by others. On a machine that is busy, jobs
// that wait may have been handed back before: then only the job that stands is rescued.)
func aBeginningProvesItsClaim(t *testing.T, d *env) {
	const jobs = 50
	lost := make(chan int, jobs)
	zombie := d.open(t, queue.Options{TTL: time.Hour, Observer: queue.Observer{Lost: func(_ string, n int) { lost <- n }}})
	stands, goOn := make(chan struct{}), make(chan struct{})
	var did once
	handle(t, zombie, quickKind, func(context.Context, queue.Job[int]) error { return nil })
	handle(t, zombie, "stand", func(context.Context, queue.Job[int]) error {
		close(stands)
		<-goOn
		return nil
	})
	handle(t, zombie, "note", func(_ context.Context, job queue.Job[int]) error {
		did.did(job.ID)
		return nil
	})
	tasks := make([]queue.Task, 500, 501+jobs)
	for i := range tasks {
		tasks[i] = queue.Task{Kind: quickKind, Args: i}
	}
	tasks = append(tasks, queue.Task{Kind: "stand", Args: 0, Priority: 1})
	for i := range jobs {
		tasks = append(tasks, queue.Task{Kind: "note", Args: i, Priority: 2, MaxAttempts: 1})
	}
	made, err := zombie.EnqueueMany(suite.Soon(t), tasks)
	if err != nil {
		t.Fatal(err)
	}
	q := d.open(t, queue.Options{})
	stop := work(t, zombie, queue.WorkerOptions{Concurrency: 1, Exchanges: 1, Rescue: -1, Promote: -1})
	wait(t, stands, "the job that stands")
	if err := q.Pause(suite.Soon(t), ""); err != nil { // the other process does not know of it yet
		t.Fatal(err)
	}
	d.exec(t, "DELETE FROM dblock_member")
	handle(t, q, "stand", nop)
	handle(t, q, quickKind, nop)
	handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
		did.did(job.ID)
		return nil
	})
	if again, dead, err := q.Rescue(suite.Soon(t)); err != nil || again < 1 || dead != 0 {
		t.Errorf("rescued %d and %d, %v", again, dead, err)
	} else {
		t.Logf("rescued %d", again)
	}
	close(goOn)
	if n := wait(t, lost, "an end that is refused"); n < 1 {
		t.Errorf("%d were lost", n)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_job WHERE begun = attempt + 1"); n != 0 {
		t.Errorf("%d jobs are recorded as begun", n)
	}
	if err := q.Resume(suite.Soon(t), ""); err != nil {
		t.Fatal(err)
	}
	work(t, q, queue.WorkerOptions{})
	d.empty(t)
	if err := did.check(made[501:], true); err != nil {
		t.Error(err)
	}
}

// Processes die again and again with jobs that they claimed and did not begin. Of each job's
// attempts one is lost at most; the others count from their beginnings. The control forgets that
// beginnings are recorded: then more are lost.
func anAttemptCountsFromItsBeginning(t *testing.T, d *env) {
	const deaths, most = 4, 4
	q := d.open(t, queue.Options{})
	atOnce := queue.Backoff(func(int, error) time.Duration { return 0 })
	handle(t, q, "note", func(context.Context, queue.Job[int]) error { return nil }, atOnce)
	tasks := []queue.Task{{Kind: "note", Args: 0}, {Kind: "note", Args: 1, Unique: "u"}, {Kind: "note", Args: 2, Group: "g"}}
	for i := range tasks {
		tasks[i].MaxAttempts = most
	}
	enqueue(t, q, tasks...)
	attempts := func() int64 { return d.count(t, "SELECT max(attempt) FROM dblock_queue_job") }
	dies := func() {
		t.Helper()
		d.claimsForTheDead(t)
		if again, dead, err := q.Rescue(suite.Soon(t)); again != len(tasks) || dead != 0 || err != nil {
			t.Errorf("rescued %d and %d, %v", again, dead, err)
		}
	}
	begun := 0
	for last := range int64(most - 1) { // a death after the beginning, and others before the next one
		for range deaths {
			dies()
		}
		if n := attempts(); n != 1+last {
			t.Errorf("%d attempts count after %d beginnings", n, begun)
		}
		d.beginsAndDies(t, q, len(tasks), int(last)+2)
		begun++
	}
	if n := d.count(t, fmt.Sprint("SELECT count(*) FROM dblock_queue_dead WHERE attempt = ", most)); int(n) != len(tasks) {
		t.Errorf("%d jobs are dead, whose last attempts have begun", n)
	}
	enqueue(t, q, tasks...)
	for range deaths {
		d.exec(t, "UPDATE dblock_queue_job SET begun = NULL")
		dies()
	}
	if n := attempts(); n != most-1 {
		t.Errorf("control: %d attempts count", n)
	}
}

// claimsForTheDead claims all ready jobs for a process that is not there.
func (d *env) claimsForTheDead(t *testing.T) {
	t.Helper()
	if d.e.Kind == devdb.Postgres {
		d.exec(t, `WITH taken AS (DELETE FROM dblock_queue_ready RETURNING job_id)
			INSERT INTO dblock_queue_claim (claim_id, member_id, queue, job_ids)
			SELECT gen_random_uuid(), gen_random_uuid(), 'default', array_agg(job_id) FROM taken`)
		return
	}
	d.exec(t, `INSERT INTO dblock_queue_claim (member_id, claim_id, job_id, queue, priority, ready_at)
		SELECT 'a dead member ..', 'its one claim ..', job_id, queue, priority, ready_at FROM dblock_queue_ready`)
	d.exec(t, "DELETE FROM dblock_queue_ready")
}

// beginsAndDies has another process begin all jobs, as the given attempt, and has it taken for
// dead.
func (d *env) beginsAndDies(t *testing.T, q *queue.Queue, jobs, attempt int) {
	t.Helper()
	zombie := d.open(t, queue.Options{TTL: time.Hour})
	began, end := make(chan int, jobs), make(chan struct{})
	handle(t, zombie, "note", func(_ context.Context, job queue.Job[int]) error {
		began <- job.Attempt
		<-end
		return nil
	})
	stop := work(t, zombie, queue.WorkerOptions{Concurrency: jobs, Rescue: -1, Promote: -1})
	for range jobs {
		if n := wait(t, began, "a job begins"); n != attempt {
			t.Errorf("attempt %d has begun, not %d", n, attempt)
		}
	}
	d.exec(t, "DELETE FROM dblock_member")
	if again, dead, err := q.Rescue(suite.Soon(t)); again+dead != jobs || err != nil {
		t.Errorf("rescued %d and %d, %v", again, dead, err)
	}
	if err := q.Pause(suite.Soon(t), ""); err != nil { // the zombie claims no more
		t.Fatal(err)
	}
	close(end)
	if err := stop(); err != nil {
		t.Error(err)
	}
	if err := q.Resume(suite.Soon(t), ""); err != nil {
		t.Fatal(err)
	}
}

// Another transaction has locked the row of a job whose last attempt is to begin. The last attempts of other jobs begin and end meanwhile.
// That of the locked job begins once the lock is released. Each is recorded before it begins.
func aLockedJobStopsNoBeginnings(t *testing.T, d *env) {
	const others = 20
	q := d.open(t, queue.Options{})
	began, end := make(chan int, 1+others), make(chan struct{})
	handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
		began <- job.Args
		<-end
		return nil
	})
	enqueue(t, q, queue.Task{Kind: "note", Args: 0, MaxAttempts: 1})
	tx, err := d.db.BeginTx(context.Background(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	if _, err := tx.ExecContext(t.Context(), "SELECT job_id FROM dblock_queue_job FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	var made []queue.ID
	for n := range others {
		made = append(made, enqueue(t, q, queue.Task{Kind: "note", Args: 1 + n, MaxAttempts: 1})...)
	}
	work(t, q, queue.WorkerOptions{Concurrency: 2 * others})
	const recorded = "SELECT count(*) FROM dblock_queue_job WHERE begun = attempt + 1"
	for range others {
		if n := wait(t, began, "a last attempt beside the lock"); n == 0 {
			t.Error("the locked job has begun: it cannot be recorded")
		}
	}
	if n := d.count(t, recorded); n != others {
		t.Errorf("%d jobs are recorded as begun, want %d", n, others)
	}
	close(end)
	suite.Until(t, "the ends of the other jobs are recorded", func() bool { return d.standing(t, made) == 0 })
	if n := len(began); n != 0 {
		t.Errorf("%d more have begun", n)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if n := wait(t, began, "the job that was locked"); n != 0 {
		t.Errorf("job %d has begun again", n)
	}
	d.empty(t)
}
