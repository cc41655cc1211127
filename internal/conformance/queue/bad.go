package queue

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/queue"
)

// aBadRowStopsNoQueue has jobs with times that no statement of dblock's writes, and ready rows of no job before them. The jobs are
// done at once, the rows are removed, and that is reported.
func aBadRowStopsNoQueue(t *testing.T, d *env) {
	const void = 10_000
	var reported atomic.Int64
	q := d.open(t, queue.Options{Observer: queue.Observer{Trouble: func(_ string, err error) {
		if strings.Contains(err.Error(), "no job") {
			reported.Add(1)
		}
	}}})
	var did once
	handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
		did.did(job.ID)
		return nil
	})
	made := enqueue(t, q, queue.Task{Kind: "note", Args: 1}, queue.Task{Kind: "note", Args: 2}, queue.Task{Kind: "note", Args: 3},
		queue.Task{Kind: "note", Args: 4, Priority: 1})
	digits := "(SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4" +
		" UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"
	if d.e.Kind == devdb.Postgres {
		d.exec(t, "ALTER TABLE dblock_queue_job DROP CONSTRAINT dblock_queue_job_bounds") // the rows here are older than it
		d.exec(t, "ALTER TABLE dblock_queue_ready DROP CONSTRAINT dblock_queue_ready_finite")
		d.exec(t, "UPDATE dblock_queue_job SET enqueued_at = CASE WHEN job_id = (SELECT min(job_id::text)::uuid FROM dblock_queue_job) THEN 'infinity'::timestamptz ELSE '-infinity' END")
		d.exec(t, "UPDATE dblock_queue_ready SET ready_at = 'infinity' WHERE priority = 1")
		d.exec(t, "INSERT INTO dblock_queue_ready (queue, priority, ready_at, job_id) SELECT 'default', 0, '2000-01-01', gen_random_uuid() FROM generate_series(1, 10000)")
	} else {
		d.execLax(t, "UPDATE dblock_queue_job SET enqueued_at = '0000-00-00'",
			"INSERT INTO dblock_queue_ready (queue, priority, ready_at, job_id) VALUES ('default', 2, '0000-00-00', UNHEX(REPEAT('ab', 16)))",
			"INSERT INTO dblock_queue_ready (queue, priority, ready_at, job_id) SELECT 'default', 0, '2000-01-01', UNHEX(SUBSTRING(SHA2(CONCAT(a.n, b.n, c.n, d.n), 256), 1, 32))"+
				" FROM "+digits+" a, "+digits+" b, "+digits+" c, "+digits+" d",
		)
	}
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_ready WHERE priority < 2"); n != void+4 {
		t.Fatalf("%d rows are ready", n)
	}
	if _, err := q.Stats(t.Context()); err != nil {
		t.Errorf("statistics: %v", err)
	}
	for _, id := range made {
		if _, err := q.Show(t.Context(), id); err != nil {
			t.Errorf("a job: %v", err)
		}
	}
	work(t, q, queue.WorkerOptions{})
	suite.Until(t, "the jobs are done", func() bool { return did.all(made) })
	d.exec(t, "DELETE FROM dblock_queue_ready WHERE priority = 2") // on MySQL and MariaDB it is passed over
	d.empty(t)
	if reported.Load() == 0 {
		t.Error("nothing was reported")
	}
}

// execLax runs statements in a MySQL session that takes zero dates.
func (d *env) execLax(t *testing.T, statements ...string) {
	t.Helper()
	conn, err := d.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for _, statement := range append(append([]string{"SET SESSION sql_mode = ''"}, statements...), "SET SESSION sql_mode = DEFAULT") {
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%v in %s", err, statement)
		}
	}
}

// spoil writes times that are none where a condition holds: on Postgres once each infinity, on MySQL and MariaDB the zero date.
func (d *env) spoil(t *testing.T, table, column, where string) {
	t.Helper()
	if d.e.Kind == devdb.Postgres {
		d.exec(t, "UPDATE "+table+" SET "+column+" = CASE WHEN EXISTS (SELECT 1 FROM "+table+" o WHERE o.ctid < "+table+".ctid AND o."+where+
			") THEN 'infinity'::timestamptz ELSE '-infinity' END WHERE "+where)
		return
	}
	d.execLax(t, "UPDATE "+table+" SET "+column+" = '0000-00-00' WHERE "+where)
}

// badTimesStopNoQueue has bad times wherever a job may be. What looks after the queues, lists and counts goes on, and the other jobs are done.
func badTimesStopNoQueue(t *testing.T, d *env) {
	q := d.open(t, queue.Options{History: 1})
	if d.e.Kind == devdb.Postgres { // the rows here are older than these
		for _, of := range []string{"job DROP CONSTRAINT dblock_queue_job_bounds", "dead DROP CONSTRAINT dblock_queue_dead_bounds",
			"scheduled DROP CONSTRAINT dblock_queue_scheduled_finite"} {
			d.exec(t, "ALTER TABLE dblock_queue_"+of)
		}
	}
	var did once
	handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
		did.did(job.ID)
		return nil
	})
	handle(t, q, "discard", func(context.Context, queue.Job[int]) error { return queue.Discard(errBadDay) })
	began, end := make(chan struct{}, 1), make(chan struct{})
	handle(t, q, "hold", func(context.Context, queue.Job[int]) error {
		began <- struct{}{}
		<-end
		return nil
	})
	work(t, q, queue.WorkerOptions{Queue: "held"})
	enqueue(t, q, queue.Task{Kind: "hold", Queue: "held"})
	wait(t, began, "the job that stays claimed")
	d.spoil(t, "dblock_queue_claim", "claimed_at", "queue = 'held'")

	// The unique key of the last two dead jobs is another job's, so that they stay dead.
	dead := enqueue(t, q, queue.Task{Kind: "note", Args: 1}, queue.Task{Kind: "note", Args: 2})
	for range 2 {
		id := enqueue(t, q, queue.Task{Kind: "note", Unique: "u", Priority: 3})[0]
		dead = append(dead, id)
		if err := q.Discard(t.Context(), id, "no more"); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range dead[:2] {
		if err := q.Discard(t.Context(), id, "no more"); err != nil {
			t.Fatal(err)
		}
	}
	enqueue(t, q, queue.Task{Kind: "note", Unique: "u", Queue: "default", Delay: 2 * time.Hour})
	d.spoil(t, "dblock_queue_dead", "died_at", "priority = 3")
	d.spoil(t, "dblock_queue_history", "finished_at", "priority = 3")
	enqueue(t, q, queue.Task{Kind: "note", Queue: "later", Delay: time.Hour}, queue.Task{Kind: "note", Queue: "later", Delay: time.Hour})
	d.spoil(t, "dblock_queue_scheduled", "run_at", "queue = 'later'")
	due := enqueue(t, q, queue.Task{Kind: "note", Delay: time.Millisecond})[0]
	if err := q.Pause(t.Context(), "later"); err != nil {
		t.Fatal(err)
	}
	d.spoil(t, "dblock_queue", "paused_at", "queue = 'later'")
	given := enqueue(t, q, queue.Task{Kind: "discard", Args: 1, Priority: 5}, queue.Task{Kind: "discard", Args: 2, Priority: 5})
	d.spoil(t, "dblock_queue_job", "enqueued_at", "priority = 5")

	if s, err := q.Stats(t.Context()); err != nil || len(s.Queues) != 3 || s.Queues[2].Scheduled != 2 || s.Queues[2].Paused < 0 {
		t.Errorf("statistics: %+v, %v", s, err)
	}
	for _, state := range []queue.State{queue.Ready, queue.Scheduled, queue.Retrying, queue.Claimed, queue.Dead, queue.Finished, queue.GivenUp} {
		for _, name := range []string{"default", "later", "held"} {
			if _, err := q.List(t.Context(), queue.Filter{Queue: name, State: state}); err != nil {
				t.Errorf("listing what is %v of %s: %v", state, name, err)
			}
		}
	}
	if n, err := q.RetryAll(suite.Soon(t), ""); err != nil || n != 2 {
		t.Errorf("%d dead jobs were retried, want 2: %v", n, err)
	}
	for _, id := range dead {
		if _, err := q.Show(t.Context(), id); err != nil {
			t.Errorf("a dead job: %v", err)
		}
	}
	if _, err := q.Promote(t.Context()); err != nil {
		t.Errorf("promotion: %v", err)
	}
	work(t, q, queue.WorkerOptions{})
	suite.Until(t, "the other jobs are done", func() bool { return did.all([]queue.ID{dead[0], dead[1], due}) })
	for _, id := range given {
		suite.Until(t, "a job is given up", func() bool {
			r, err := q.Show(t.Context(), id)
			return err == nil && r.State == queue.Dead
		})
	}
	if _, err := q.RetryAll(suite.Soon(t), ""); err != nil {
		t.Errorf("retrying what was given up: %v", err)
	}
	if _, err := q.Purge(t.Context(), "", 0); err != nil {
		t.Errorf("purging: %v", err)
	}
	close(end)
}
