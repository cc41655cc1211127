package queue

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/queue"
)

// A claim may be committed long after its worker has given it up: here it is recorded, for a worker that lives, only when no statement of
// the claim is waited for any more. The worker finds it with a heartbeat, and the jobs are done.
func findsAClaimThatItDoesNotKnow(t *testing.T, d *env) {
	var did once
	q := d.open(t, queue.Options{TTL: time.Second})
	began, end := make(chan struct{}, 1), make(chan struct{})
	handle(t, q, "first", func(context.Context, queue.Job[int]) error {
		began <- struct{}{}
		<-end
		return nil
	})
	handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
		did.did(job.ID)
		return nil
	})
	stop := work(t, q, queue.WorkerOptions{Concurrency: 1, Ahead: -1})
	enqueue(t, q, queue.Task{Kind: "first", Args: 0})
	wait(t, began, "the first job")
	all := enqueue(t, q, queue.Task{Kind: "note", Args: 1}, queue.Task{Kind: "note", Args: 2})
	d.claimAll(t)
	close(end)
	d.empty(t)
	if err := did.check(all, true); err != nil {
		t.Error(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// claimAll records, in SQL of the test's own, one more claim of the process that has one: of all jobs that are ready.
func (d *env) claimAll(t *testing.T) {
	t.Helper()
	claim := `INSERT INTO dblock_queue_claim (member_id, claim_id, job_id, queue, priority, ready_at)
		SELECT c.member_id, 'a claim 16 bytes', r.job_id, r.queue, r.priority, r.ready_at FROM dblock_queue_claim c CROSS JOIN dblock_queue_ready r`
	if d.e.Kind == devdb.Postgres {
		claim = `INSERT INTO dblock_queue_claim (claim_id, member_id, queue, job_ids)
			SELECT 'a0000000-0000-7000-8000-000000000001', c.member_id, c.queue, ARRAY(SELECT r.job_id FROM dblock_queue_ready r) FROM dblock_queue_claim c`
	}
	tx, err := d.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	for _, statement := range []string{claim, "DELETE FROM dblock_queue_ready"} {
		if _, err := tx.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// Ends that the database has not taken when Work returns are not forgotten: Work says so, and the Queue records them once it can.
func recordsWhatIsLeftAfterWork(t *testing.T, d *env) {
	const jobs = 3
	q := d.open(t, queue.Options{Timeout: 300 * time.Millisecond})
	began, end := make(chan struct{}, jobs), make(chan struct{})
	var runs atomic.Int32
	handle(t, q, "note", func(context.Context, queue.Job[int]) error {
		runs.Add(1)
		began <- struct{}{}
		<-end
		return nil
	})
	stop := work(t, q, queue.WorkerOptions{Concurrency: jobs, Promote: -1, Rescue: -1})
	for n := range jobs {
		enqueue(t, q, queue.Task{Kind: "note", Args: n})
	}
	for range jobs {
		wait(t, began, "a job")
	}
	tx, err := d.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	for _, table := range []string{"claim", "job"} {
		rows, err := tx.QueryContext(t.Context(), "SELECT 1 FROM dblock_queue_"+table+" FOR UPDATE")
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			t.Fatal(err)
		}
	}
	close(end)
	if err := stop(); !errors.Is(err, queue.ErrNotRecorded) {
		t.Errorf("Work returned %v while the ends of its jobs are not recorded", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	d.empty(t)
	if n := runs.Load(); n != jobs {
		t.Errorf("%d runs of %d jobs", n, jobs)
	}
}

// The payloads of the jobs that are there take longer to read than Timeout: all jobs are done, once, with the payloads that they have.
func payloadsMayTakeLongerThanTimeout(t *testing.T, d *env) {
	const jobs = 40
	host := d.open(t, queue.Options{})
	var tasks []queue.Task
	for n := range jobs {
		tasks = append(tasks, queue.Task{Kind: "large", Args: strings.Repeat(string(rune('A'+n%26)), 200<<10)})
	}
	all, err := host.EnqueueMany(suite.Soon(t), tasks)
	if err != nil {
		t.Fatal(err)
	}
	q, closePool, err := d.e.OpenOn(t.Context(), d.dsn, &faultconn.Dialer{Rate: 5 << 20}, queue.Options{Timeout: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer closePool()
	defer func() { _ = q.Close(suite.Soon(t)) }()
	var did once
	handle(t, q, "large", func(_ context.Context, job queue.Job[string]) error {
		if len(job.Args) != 200<<10 || strings.Count(job.Args, job.Args[:1]) != len(job.Args) {
			t.Errorf("a payload of %d bytes", len(job.Args))
		}
		did.did(job.ID)
		return nil
	})
	stop := work(t, q, queue.WorkerOptions{})
	d.empty(t)
	if err := did.check(all, true); err != nil {
		t.Error(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
