package queue

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/queue"
)

// schedule schedules so many jobs by hand, in n queues whose names begin with a prefix: the rows of dblock_queue_scheduled alone.
func (d *env) schedule(t *testing.T, prefix string, n, jobs int) {
	t.Helper()
	if d.e.Kind == devdb.Postgres {
		d.exec(t, fmt.Sprintf("INSERT INTO dblock_queue_scheduled (run_at, job_id, queue, priority) "+
			"SELECT now() + interval '1 hour', gen_random_uuid(), '%s' || i %% %d, 0 FROM generate_series(1, %d) i", prefix, n, jobs))
		return
	}
	digits := "(SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4" +
		" UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"
	d.exec(t, fmt.Sprintf("INSERT INTO dblock_queue_scheduled (run_at, job_id, queue, priority) "+
		"SELECT TIMESTAMPADD(HOUR, 1, UTC_TIMESTAMP(6)), UNHEX(SUBSTRING(SHA2(CONCAT('%[1]s', i.n), 256), 1, 32)), CONCAT('%[1]s', i.n %% %[2]d), 0 "+
		"FROM (SELECT 10000 * a.n + 1000 * b.n + 100 * c.n + 10 * e.n + f.n AS n FROM %[4]s a, %[4]s b, %[4]s c, %[4]s e, %[4]s f) i WHERE i.n < %[3]d",
		prefix, n, jobs, digits))
}

// countsEachQueueApart has 25 queues with 3,000 scheduled jobs each, and one with so many that counting stops. None is counted less for the
// others, and none is left out.
func countsEachQueueApart(t *testing.T, d *env) {
	const queues, each, many = 25, 3000, 10_500
	d.schedule(t, "q", queues, queues*each)
	d.schedule(t, "z", 1, many)
	s, err := d.open(t, queue.Options{}).Stats(t.Context())
	if err != nil || len(s.Queues) != queues+1 {
		t.Errorf("%d queues are counted, want %d: %v", len(s.Queues), queues+1, err)
	}
	for _, q := range s.Queues {
		want := each
		if q.Queue == "z0" {
			want = queue.MaxCounted
		}
		if q.Scheduled != want {
			t.Errorf("queue %s has %d scheduled jobs, want %d", q.Queue, q.Scheduled, want)
		}
	}
}

// listsBehindOtherQueues has scheduled jobs of a queue behind more than 10,000 of another one.
func listsBehindOtherQueues(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	d.schedule(t, "z", 1, 10_500)
	made := enqueue(t, q, queue.Task{Kind: "x", Delay: 5 * time.Hour}, queue.Task{Kind: "x", Delay: 2 * time.Hour}, queue.Task{Kind: "x", Delay: 3 * time.Hour},
		queue.Task{Kind: "x", Delay: 4 * time.Hour}, queue.Task{Kind: "x", Delay: 6 * time.Hour})
	list, err := q.List(t.Context(), queue.Filter{State: queue.Scheduled})
	if err != nil || len(list) != len(made) {
		t.Fatalf("%d of %d jobs are listed: %v", len(list), len(made), err)
	}
	for i, n := range []int{1, 2, 3, 0, 4} { // in the order of their times
		if list[i].ID != made[n] {
			t.Errorf("job %d of the list is %v, want %v", i, list[i].ID, made[n])
		}
	}
}

// tellsRetriesApart has a job that failed, one whose process was killed, one that was snoozed and a delayed one. The first two are retrying.
func tellsRetriesApart(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	handle(t, q, "note", func(context.Context, queue.Job[int]) error { return errors.New("not now") },
		queue.Backoff(func(int, error) time.Duration { return time.Hour }))
	handle(t, q, "snooze", func(context.Context, queue.Job[int]) error { return queue.Snooze(time.Hour) })
	gone := d.killed(t, q, queue.Task{Kind: "note"})
	if again, _, err := q.Rescue(t.Context()); err != nil || again != 1 {
		t.Fatalf("%d jobs run again after a rescue: %v", again, err)
	}
	made := enqueue(t, q, queue.Task{Kind: "note"}, queue.Task{Kind: "snooze"}, queue.Task{Kind: "note", Delay: time.Hour})
	work(t, q, queue.WorkerOptions{})
	d.until(t, "SELECT count(*) FROM dblock_queue_scheduled", 4)
	for state, want := range map[queue.State][]queue.ID{queue.Retrying: {gone[0], made[0]}, queue.Scheduled: {made[1], made[2]}} {
		list, err := q.List(t.Context(), queue.Filter{State: state})
		if err != nil || len(list) != len(want) {
			t.Errorf("%d jobs are %v, want %d: %v", len(list), state, len(want), err)
			continue
		}
		for _, id := range want {
			if r, err := q.Show(t.Context(), id); err != nil || r.State != state || (r.LastError != "") != (state == queue.Retrying) {
				t.Errorf("%v is shown as %+v, %v", id, r, err)
			}
		}
		for _, r := range list {
			if r.State != state || (r.LastError != "") != (state == queue.Retrying) {
				t.Errorf("%v is listed as %v with the error %q", r.ID, r.State, r.LastError)
			}
		}
	}
	if s, err := q.Stats(t.Context()); err != nil || len(s.Queues) != 1 || s.Queues[0].Retrying != 2 || s.Queues[0].Scheduled != 2 {
		t.Errorf("%+v, %v", s, err)
	}
	if was, err := q.Cancel(t.Context(), made[0]); err != nil || was != queue.Retrying {
		t.Errorf("a job that was cancelled was %v, want retrying: %v", was, err)
	}
	if err := q.Discard(t.Context(), gone[0], "no more"); err != nil {
		t.Error(err)
	}
}
