package conformance

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/queue"
)

// aBadRowStopsNoQueue has jobs with times that no statement of dblock's writes, and ready rows of no job before them. The jobs are
// done at once, the rows are removed, and that is reported.
func aBadRowStopsNoQueue(t *testing.T, d *desk) {
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
		conn, err := d.db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range []string{
			"SET SESSION sql_mode = ''", "UPDATE dblock_queue_job SET enqueued_at = '0000-00-00'",
			"INSERT INTO dblock_queue_ready (queue, priority, ready_at, job_id) VALUES ('default', 2, '0000-00-00', UNHEX(REPEAT('ab', 16)))",
			"INSERT INTO dblock_queue_ready (queue, priority, ready_at, job_id) SELECT 'default', 0, '2000-01-01', UNHEX(SUBSTRING(SHA2(CONCAT(a.n, b.n, c.n, d.n), 256), 1, 32))" +
				" FROM " + digits + " a, " + digits + " b, " + digits + " c, " + digits + " d",
			"SET SESSION sql_mode = DEFAULT",
		} {
			if _, err := conn.ExecContext(t.Context(), statement); err != nil {
				t.Fatalf("%v in %s", err, statement)
			}
		}
		_ = conn.Close()
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
	until(t, "the jobs are done", func() bool { return did.all(made) })
	d.exec(t, "DELETE FROM dblock_queue_ready WHERE priority = 2") // on MySQL and MariaDB it is passed over
	d.empty(t)
	if reported.Load() == 0 {
		t.Error("nothing was reported")
	}
}
