package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/queue"
)

// schedule writes only the rows of scheduled jobs, in n queues whose names begin with a prefix.
func (d *env) schedule(t *testing.T, prefix string, n, jobs int) {
	t.Helper()
	d.exec(t, fmt.Sprintf("INSERT INTO dblock_queue_scheduled (run_at, job_id, queue, priority) "+
		d.sql("SELECT now() + interval '1 hour', gen_random_uuid(), '%[1]s' || n %% %[2]d, 0 "+
			"FROM generate_series(1, %[3]d) n",
			"SELECT TIMESTAMPADD(HOUR, 1, UTC_TIMESTAMP(6)), UNHEX(SUBSTRING(SHA2(CONCAT('%[1]s', n), 256), 1, 32)), "+
				"CONCAT('%[1]s', n %% %[2]d), 0 FROM "+numbers+" i WHERE n < %[3]d"), prefix, n, jobs))
}

// There are 25 queues with 3,000 scheduled jobs each, and one with more than are counted.
// None is counted less for the others, and none is left out. The scheduled jobs of a queue that are
// behind those are listed in the order of their times.
func (mainTests) CountsEachQueueApart(t *testing.T, d *env) {
	const queues, each = 25, 3000
	d.schedule(t, "q", queues, queues*each)
	d.schedule(t, "z", 1, 10_500)
	q := d.open(t, queue.Options{Timeout: time.Minute})
	stats := suite.Must(q.Stats(t.Context()))(t)
	assert.Len(t, stats.Queues, queues+1)
	for _, q := range stats.Queues {
		want := each
		if q.Queue == "z0" {
			want = queue.MaxCounted
		}
		assert.Equal(t, want, q.Scheduled, "scheduled jobs of queue %s", q.Queue)
	}
	made := make([]queue.ID, 5)
	for i, n := range []int{3, 0, 1, 2, 4} {
		made[n] = enqueue(t, q, queue.Task{Kind: "x", Args: i, Delay: time.Duration(n+2) * time.Hour})[0]
	}
	listed := suite.Must(q.List(t.Context(), queue.Filter{State: queue.JobScheduled}))(t)
	assert.Equal(t, made, idsOf(listed), "ListsBehindOtherQueues")
}

func idsOf(list []queue.Record) (ids []queue.ID) {
	for _, r := range list {
		ids = append(ids, r.ID)
	}
	return ids
}

// Of four jobs one failed, the process of one was killed, one was snoozed, and one is delayed. The
// first two are retrying.
func (mainTests) TellsRetriesApart(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	handle(t, q, "note", func(context.Context, queue.Job[int]) error { return errors.New("not now") },
		queue.Backoff(func(int, error) time.Duration { return time.Hour }))
	handle(t, q, "snooze", func(context.Context, queue.Job[int]) error { return queue.Snooze(time.Hour) })
	gone := d.killed(t, q, queue.Task{Kind: "note"})
	rescue(t, q, 1, 0)
	made := enqueue(t, q, queue.Task{Kind: "note"}, queue.Task{Kind: "snooze"}, queue.Task{Kind: "note", Delay: time.Hour})
	work(t, q, queue.WorkerOptions{})
	d.Until(t, "SELECT count(*) FROM dblock_queue_scheduled", 4)
	for state, want := range map[queue.JobState][]queue.ID{
		queue.JobRetrying: {gone[0], made[0]}, queue.JobScheduled: {made[1], made[2]},
	} {
		list := suite.Must(q.List(t.Context(), queue.Filter{State: state}))(t)
		assert.ElementsMatch(t, want, idsOf(list), "listed as %v", state)
		for _, id := range want {
			list = append(list, suite.Must(q.Show(t.Context(), id))(t))
		}
		for _, r := range list {
			assert.Equal(t, state, r.State, "job %v", r.ID)
			assert.Equal(t, state == queue.JobRetrying, r.LastError != "", "job %v has an error", r.ID)
		}
	}
	stats := suite.Must(q.Stats(t.Context()))(t)
	require.Len(t, stats.Queues, 1)
	assert.Equal(t, []int{2, 2}, []int{stats.Queues[0].Retrying, stats.Queues[0].Scheduled})
	cancel(t, q, made[0], queue.JobRetrying)
	assert.NoError(t, q.Discard(t.Context(), gone[0], "no more"))
}

// numbers is a table of the n from 0 to 99,999 on MySQL and MariaDB.
var numbers = strings.ReplaceAll("(SELECT 10000 * a.d + 1000 * b.d + 100 * c.d + 10 * e.d + f.d AS n "+
	"FROM D a, D b, D c, D e, D f)", "D", "(SELECT 0 AS d"+
	" UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4"+
	" UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)")

// Jobs have times that dblock never writes, and ready rows of no job are before them. The jobs are
// done at once, the rows are removed, and that is reported.
func (mainTests) ABadRowStopsNoQueue(t *testing.T, d *env) {
	var reported atomic.Int64
	q := d.open(t, queue.Options{Observer: queue.Observer{Trouble: func(_ string, err error) {
		if strings.Contains(err.Error(), "no job") {
			reported.Add(1)
		}
	}}})
	var did once
	handle(t, q, "note", did.handle)
	made := enqueue(t, q, repeat(3, queue.Task{Kind: "note"})...)
	made = append(made, enqueue(t, q, queue.Task{Kind: "note", Args: 4, Priority: 1})...)
	if d.Kind == devdb.Postgres {
		d.exec(t, "ALTER TABLE dblock_queue_job DROP CONSTRAINT dblock_queue_job_bounds", // the rows here are older than it
			"ALTER TABLE dblock_queue_ready DROP CONSTRAINT dblock_queue_ready_finite",
			`UPDATE dblock_queue_job SET enqueued_at = CASE WHEN job_id::text = (SELECT min(job_id::text) FROM dblock_queue_job)
				THEN 'infinity'::timestamptz ELSE '-infinity' END`,
			"UPDATE dblock_queue_ready SET ready_at = 'infinity' WHERE priority = 1",
			`INSERT INTO dblock_queue_ready (queue, priority, ready_at, job_id)
				SELECT 'default', 0, '2000-01-01', gen_random_uuid() FROM generate_series(1, 10000)`)
	} else {
		insert := "INSERT INTO dblock_queue_ready (queue, priority, ready_at, job_id) "
		d.execLax(t, "UPDATE dblock_queue_job SET enqueued_at = '0000-00-00'",
			insert+"VALUES ('default', 2, '0000-00-00', UNHEX(REPEAT('ab', 16)))",
			insert+"SELECT 'default', 0, '2000-01-01', UNHEX(SUBSTRING(SHA2(n, 256), 1, 32)) FROM "+numbers+" i WHERE n < 10000")
	}
	d.rows(t, "ready WHERE priority < 2", 10_004)
	suite.Must(q.Stats(t.Context()))(t)
	for _, id := range made {
		suite.Must(q.Show(t.Context(), id))(t)
	}
	work(t, q, queue.WorkerOptions{})
	suite.Until(t, "the jobs are done", func() bool { return did.all(made) })
	d.exec(t, "DELETE FROM dblock_queue_ready WHERE priority = 2") // on MySQL and MariaDB it is passed over
	d.empty(t)
	assert.Positive(t, reported.Load(), "reports")
}

// execLax runs statements in a MySQL session that accepts zero dates.
func (d *env) execLax(t *testing.T, statements ...string) {
	t.Helper()
	conn := suite.Must(d.DB.DB.Conn(t.Context()))(t)
	defer func() { _ = conn.Close() }()
	lax, strict := []string{"SET SESSION sql_mode = ''"}, []string{"SET SESSION sql_mode = DEFAULT"}
	for _, statement := range slices.Concat(lax, statements, strict) {
		require.NoError(t, suite.Second(conn.ExecContext(t.Context(), statement)), statement)
	}
}

// spoil writes bad times where a condition holds: on Postgres each infinity once, elsewhere the
// zero date.
func (d *env) spoil(t *testing.T, table, column, where string) {
	t.Helper()
	table = "dblock_queue" + table
	if d.Kind == devdb.Postgres {
		d.exec(t, fmt.Sprintf(`UPDATE %[1]s SET %[2]s = CASE
			WHEN EXISTS (SELECT 1 FROM %[1]s o WHERE o.ctid < %[1]s.ctid AND o.%[3]s) THEN 'infinity'::timestamptz
			ELSE '-infinity' END WHERE %[3]s`, table, column, where))
		return
	}
	d.execLax(t, "UPDATE "+table+" SET "+column+" = '0000-00-00' WHERE "+where)
}

// Bad times are wherever a job may be. Maintenance, lists and counts go on, and the other jobs are
// done.
func (mainTests) BadTimesStopNoQueue(t *testing.T, d *env) {
	q := d.open(t, queue.Options{History: 1})
	if d.Kind == devdb.Postgres { // the rows here are older than these
		d.exec(t, "ALTER TABLE dblock_queue_job DROP CONSTRAINT dblock_queue_job_bounds",
			"ALTER TABLE dblock_queue_dead DROP CONSTRAINT dblock_queue_dead_bounds",
			"ALTER TABLE dblock_queue_scheduled DROP CONSTRAINT dblock_queue_scheduled_finite")
	}
	var did once
	held := newHolder(t)
	handle(t, q, "note", did.handle)
	handle(t, q, "discard", func(context.Context, queue.Job[int]) error { return queue.Discard(errBadDay) })
	handle(t, q, "hold", held.handle)
	work(t, q, queue.WorkerOptions{Queue: "held"})
	enqueue(t, q, queue.Task{Kind: "hold", Args: 1, Queue: "held"})
	held.has(t, 1)
	d.spoil(t, "_claim", "claimed_at", "queue = 'held'")

	// The unique key of the last two dead jobs is another job's, so that they stay dead.
	dead := enqueue(t, q, repeat(2, queue.Task{Kind: "note"})...)
	for range 2 {
		id := enqueue(t, q, queue.Task{Kind: "note", Args: 1, Unique: "u", Priority: 3})[0]
		dead = append(dead, id)
		require.NoError(t, q.Discard(t.Context(), id, "no more"))
	}
	for _, id := range dead[:2] {
		require.NoError(t, q.Discard(t.Context(), id, "no more"))
	}
	enqueue(t, q, queue.Task{Kind: "note", Args: 1, Unique: "u", Delay: 2 * time.Hour})
	d.spoil(t, "_dead", "died_at", "priority = 3")
	d.spoil(t, "_history", "finished_at", "priority = 3")
	enqueue(t, q, repeat(2, queue.Task{Kind: "note", Queue: "later", Delay: time.Hour})...)
	d.spoil(t, "_scheduled", "run_at", "queue = 'later'")
	due := enqueue(t, q, queue.Task{Kind: "note", Args: 1, Delay: time.Millisecond})[0]
	require.NoError(t, q.Pause(t.Context(), "later"))
	d.spoil(t, "", "paused_at", "queue = 'later'")
	given := enqueue(t, q, repeat(2, queue.Task{Kind: "discard", Priority: 5})...)
	d.spoil(t, "_job", "enqueued_at", "priority = 5")

	stats := suite.Must(q.Stats(t.Context()))(t)
	require.Len(t, stats.Queues, 3)
	assert.Equal(t, 2, stats.Queues[2].Scheduled)
	assert.GreaterOrEqual(t, stats.Queues[2].Paused, time.Duration(0))
	for _, state := range []queue.JobState{
		queue.JobReady, queue.JobScheduled, queue.JobRetrying, queue.JobClaimed, queue.JobDead, queue.JobCompleted, queue.JobDiscarded,
	} {
		for _, name := range []string{"default", "later", "held"} {
			_, err := q.List(t.Context(), queue.Filter{Queue: name, State: state})
			assert.NoError(t, err, "list what is %v of %s", state, name)
		}
	}
	assert.Equal(t, 2, suite.Must(q.RetryAll(suite.Soon(t), ""))(t), "retried jobs")
	for _, id := range dead {
		suite.Must(q.Show(t.Context(), id))(t)
	}
	suite.Must(q.Promote(t.Context()))(t)
	work(t, q, queue.WorkerOptions{})
	suite.Until(t, "the other jobs are done", func() bool { return did.all([]queue.ID{dead[0], dead[1], due}) })
	for _, id := range given {
		suite.Until(t, "a job is given up", func() bool {
			r, err := q.Show(t.Context(), id)
			return err == nil && r.State == queue.JobDead
		})
	}
	suite.Must(q.RetryAll(suite.Soon(t), ""))(t)
	suite.Must(q.Purge(t.Context(), "", 0))(t)
	close(held.end)
}
