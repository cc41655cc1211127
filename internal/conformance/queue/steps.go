package queue

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/queue"
)

// slow has each row that is written to or deleted from a table take its time.
func (d *env) slow(t *testing.T, event, table string) {
	t.Helper()
	name := "slow_" + strings.ToLower(event) + "_" + table
	if d.e.Kind == devdb.Postgres {
		d.exec(t, "CREATE FUNCTION "+name+"() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.004); RETURN COALESCE(NEW, OLD); END $$")
		d.exec(t, fmt.Sprintf("CREATE TRIGGER %s AFTER %s ON %s FOR EACH ROW EXECUTE FUNCTION %[1]s()", name, event, table))
		return
	}
	d.exec(t, fmt.Sprintf("CREATE TRIGGER %s BEFORE %s ON %s FOR EACH ROW DO SLEEP(0.004)", name, event, table))
}

// A server is so slow that Options.Timeout cuts off the statements of a rescue: smaller ones rescue all jobs.
func aSlowServerRescuesStepByStep(t *testing.T, d *env) {
	const jobs = 240
	gone := d.open(t, queue.Options{TTL: time.Hour})
	began, end := make(chan struct{}, jobs), make(chan struct{})
	defer close(end)
	handle(t, gone, "note", func(context.Context, queue.Job[int]) error {
		began <- struct{}{}
		<-end
		return nil
	})
	tasks := make([]queue.Task, jobs)
	for i := range tasks {
		tasks[i] = queue.Task{Kind: "note", Args: i}
		if i%2 == 0 {
			tasks[i].Unique, tasks[i].MaxAttempts = fmt.Sprint(i), 1
		}
	}
	if _, err := gone.EnqueueMany(suite.Soon(t), tasks); err != nil {
		t.Fatal(err)
	}
	work(t, gone, queue.WorkerOptions{Concurrency: jobs, Promote: -1, Rescue: -1})
	for range jobs {
		wait(t, began, "a job")
	}
	d.exec(t, "DELETE FROM dblock_member")
	d.slow(t, "INSERT", "dblock_queue_scheduled")
	d.slow(t, "INSERT", "dblock_queue_dead")
	q := d.open(t, queue.Options{Timeout: 300 * time.Millisecond})
	handle(t, q, "note", nop, queue.Backoff(func(int, error) time.Duration { return time.Hour }))
	suite.Until(t, "all jobs are rescued", func() bool {
		_, _, err := q.Rescue(suite.Soon(t))
		if err != nil {
			t.Log(err)
		}
		return d.count(t, "SELECT count(*) FROM dblock_queue_claim") == 0
	})
	for table, want := range map[string]int64{"scheduled": jobs / 2, "dead": jobs / 2, "job": jobs / 2, "unique": 0, "ready": 0} {
		if n := d.count(t, "SELECT count(*) FROM dblock_queue_"+table); n != want {
			t.Errorf("%d rows of %s, want %d", n, table, want)
		}
	}
}

// The same of old history.
func aSlowServerPrunesStepByStep(t *testing.T, d *env) {
	const rows = 300
	q := d.open(t, queue.Options{Timeout: 300 * time.Millisecond, History: 1})
	d.overdue(t, rows, "")
	d.exec(t, "INSERT INTO dblock_queue_history (day, job_id, queue, kind, priority, attempt, outcome, enqueued_at) "+
		"SELECT '2020-01-01', s.job_id, s.queue, 'note', 0, 1, 1, s.run_at FROM dblock_queue_scheduled s")
	d.slow(t, "DELETE", "dblock_queue_history")
	suite.Until(t, "old history is deleted", func() bool {
		if _, err := q.PruneHistory(suite.Soon(t)); err != nil {
			t.Log(err)
		}
		return d.count(t, "SELECT count(*) FROM dblock_queue_history") == 0
	})
}
