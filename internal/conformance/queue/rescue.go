package queue

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/queue"
)

// killed has a process be killed that had begun some jobs.
func (d *env) killed(t *testing.T, q *queue.Queue, tasks ...queue.Task) []queue.ID {
	t.Helper()
	made := enqueue(t, q, tasks...)
	victim := d.startWorker(t)
	for range tasks {
		victim.Says(t, "began")
	}
	victim.Kill()
	d.exec(t, "DELETE FROM dblock_member")
	return made
}

// A job whose process was killed waits as one that failed.
func aRescueHasABackoff(t *testing.T, d *env) {
	const jobs = 10
	q := d.open(t, queue.Options{})
	asked := make(chan int, jobs)
	handle(t, q, "note", nop, queue.Backoff(func(attempt int, _ error) time.Duration {
		asked <- attempt
		return time.Hour
	}))
	tasks := make([]queue.Task, jobs)
	for i := range tasks {
		tasks[i] = queue.Task{Kind: "note", Args: i}
	}
	d.killed(t, q, tasks...)
	if again, dead, err := q.Rescue(t.Context()); err != nil || again != jobs || dead != 0 {
		t.Errorf("rescued %d and %d, %v", again, dead, err)
	}
	if ready, later := d.count(t, "SELECT count(*) FROM dblock_queue_ready"), d.count(t, "SELECT count(*) FROM dblock_queue_scheduled"); ready != 0 || later != jobs {
		t.Errorf("%d jobs are ready, %d wait", ready, later)
	}
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_job WHERE attempt = 1"); n != jobs {
		t.Errorf("%d jobs have had an attempt", n)
	}
	for range jobs {
		if n := wait(t, asked, "the backoff"); n != 1 {
			t.Errorf("attempt %d", n)
		}
	}
	d.until(t, "SELECT count(*) FROM dblock_queue_claim", 0)
}

// Jobs that had their last attempt with a process that was killed: the rows of a group and of a unique key are locked, and the count of
// another group is wrong. All others are given up, and so are these once they can be.
func aRescuePassesLockedKeys(t *testing.T, d *env) {
	q := d.open(t, queue.Options{Timeout: 5 * time.Second})
	tasks := []queue.Task{{Group: "locked"}, {Unique: "locked"}, {Group: "wrong"}}
	for n := range 4 {
		tasks = append(tasks, queue.Task{Group: fmt.Sprint(n)}, queue.Task{Unique: fmt.Sprint(n)}, queue.Task{})
	}
	for i := range tasks {
		tasks[i].Kind, tasks[i].Args, tasks[i].MaxAttempts = "note", i, 1
	}
	tasks = append(tasks, queue.Task{Kind: "note", Args: 0, Group: "again"})
	made := d.killed(t, q, tasks...)
	tx := d.openTx(t)
	for _, row := range []string{"dblock_queue_key WHERE queue = 'default' AND group_key = 'locked'", "dblock_queue_unique WHERE queue = 'default' AND unique_key = 'locked'"} {
		if _, err := tx.ExecContext(t.Context(), "SELECT queue FROM "+row+" FOR UPDATE"); err != nil {
			t.Fatal(err)
		}
	}
	d.exec(t, "UPDATE dblock_queue_key SET taken = 0 WHERE queue = 'default' AND group_key = 'wrong'")
	if again, dead, err := q.Rescue(suite.Soon(t)); err != nil || again != 1 || dead != 12 {
		t.Errorf("rescued %d and %d, %v", again, dead, err)
	}
	if n := d.standing(t, made[:3]); n != 3 {
		t.Errorf("%d of 3 stand", n)
	}
	if again, dead, err := q.Rescue(suite.Soon(t)); err != nil || again != 0 || dead != 0 {
		t.Errorf("rescued %d and %d more, %v", again, dead, err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if again, dead, err := q.Rescue(suite.Soon(t)); err != nil || again != 0 || dead != 2 {
		t.Errorf("rescued %d and %d that were locked, %v", again, dead, err)
	}
	d.exec(t, "UPDATE dblock_queue_key SET taken = 1 WHERE queue = 'default' AND group_key = 'wrong'")
	var done once
	handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
		done.did(job.ID)
		return nil
	})
	work(t, q, queue.WorkerOptions{Rescue: 100 * time.Millisecond})
	d.empty(t)
	if err := done.check(made[len(made)-1:], true); err != nil {
		t.Error(err)
	}
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_dead"); n != 15 {
		t.Errorf("%d are dead", n)
	}
}

// The server refuses to end some jobs of a claim whose process was killed, and gives up others. The claim keeps the jobs that have not ended:
// the next rescue ends them.
func aRescueThatFailsKeepsItsClaims(t *testing.T, d *env) {
	const jobs = 10
	q := d.open(t, queue.Options{})
	handle(t, q, "note", nop, queue.Backoff(func(int, error) time.Duration { return time.Hour }))
	tasks := make([]queue.Task, jobs)
	for i := range tasks {
		tasks[i] = queue.Task{Kind: "note", Args: i}
		if i%2 == 0 {
			tasks[i].Unique, tasks[i].MaxAttempts = fmt.Sprint(i), 1
		}
	}
	d.killed(t, q, tasks...)
	drop := "DROP TRIGGER refuse"
	if d.e.Kind == devdb.Postgres {
		d.exec(t, "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now'; END $$")
		d.exec(t, "CREATE TRIGGER refuse BEFORE INSERT ON dblock_queue_scheduled FOR EACH ROW EXECUTE FUNCTION refuse()")
		drop += " ON dblock_queue_scheduled"
	} else {
		d.exec(t, "CREATE TRIGGER refuse BEFORE INSERT ON dblock_queue_scheduled FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not now'")
	}
	if again, dead, err := q.Rescue(suite.Soon(t)); err == nil || again != 0 || dead != jobs/2 {
		t.Errorf("rescued %d and %d, %v; want an error and %d that are dead", again, dead, err, jobs/2)
	}
	d.exec(t, drop)
	if again, dead, err := q.Rescue(suite.Soon(t)); err != nil || again != jobs/2 || dead != 0 {
		t.Errorf("rescued %d and %d, %v; want %d again", again, dead, err, jobs/2)
	}
	d.until(t, "SELECT count(*) FROM dblock_queue_claim", 0)
}
