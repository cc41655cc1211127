package queue

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/queue"
)

// A job with another limit comes to its group later than the one that was enqueued last, which
// says what the limit is, also if that one is delayed.
func (mainTests) OlderJobsKeepTheLimit(t *testing.T, d *env) {
	task := func(limit int, d time.Duration) queue.Task {
		return queue.Task{Kind: "note", Group: "g", GroupLimit: limit, Delay: d}
	}
	q := d.open(t, queue.Options{})
	enqueue(t, q, task(10, time.Microsecond), task(1, 0))
	promote(t, q, 1)
	assert.EqualValues(t, 1, d.Count(t, "SELECT most FROM dblock_queue_key"), "after an older job")
	enqueue(t, q, task(3, time.Hour))
	assert.EqualValues(t, 3, d.Count(t, "SELECT most FROM dblock_queue_key"), "after a delayed job")
}

// A group's limit is raised while jobs wait. They begin before jobs that come later.
func (mainTests) ARaisedLimitLetsTheFirstIn(t *testing.T, d *env) {
	const waiting, late, limit = 40, 4, 3
	q, began := d.open(t, queue.Options{}), make(chan int, waiting+late)
	handle(t, q, "note", record(began))
	tasks := repeat(waiting+late, queue.Task{Kind: "note", Group: "g"})
	for n := waiting; n < len(tasks); n++ {
		tasks[n].GroupLimit = limit
	}
	enqueue(t, q, tasks...)
	work(t, q, queue.WorkerOptions{Concurrency: 1, Syncs: 1})
	for n := range waiting + late { // admitted jobs begin in any order
		assert.Less(t, suite.Wait(t, began, "a job"), n+limit)
	}
	d.empty(t)
}

// Jobs that wait are deleted, and the limit of their group is raised by hand. All others are done.
func (mainTests) AGroupWithGapsIsDone(t *testing.T, d *env) {
	const jobs, gone = 60, 19 // seq 3 does not wait
	q, began := d.open(t, queue.Options{}), make(chan int, jobs)
	handle(t, q, "note", record(began))
	enqueue(t, q, repeat(jobs, queue.Task{Kind: "note", Group: "g", GroupLimit: 3})...)
	d.exec(t, "DELETE FROM dblock_queue_job WHERE job_id IN (SELECT job_id FROM dblock_queue_blocked WHERE MOD(seq, 3) = 0)",
		"DELETE FROM dblock_queue_blocked WHERE MOD(seq, 3) = 0", "UPDATE dblock_queue_key SET most = 20")
	work(t, q, queue.WorkerOptions{Concurrency: 20})
	for range jobs - gone {
		suite.Wait(t, began, "a job")
	}
	d.empty(t)
}

// Transactions of the host have snapshots in which jobs of a group wait. The group ends. Then each
// transaction enqueues a job of its group, and the job is done, unless the database has refused it.
func (mainTests) AnOldSnapshotBlocksNoGroup(t *testing.T, d *env) {
	levels := map[string]sql.IsolationLevel{
		"repeatable read": sql.LevelRepeatableRead, "serializable": sql.LevelSerializable, "read committed": sql.LevelReadCommitted,
	}
	each(t, d, levels, func(t *testing.T, d *env, level sql.IsolationLevel) {
		const groups, others = 8, 30
		task := func(group string, n int) queue.Task { return queue.Task{Kind: "note", Args: n, Group: group} }
		q, done, open := d.open(t, queue.Options{}), make(chan int, others+3*groups), make(chan struct{})
		handle(t, q, "note", func(ctx context.Context, job queue.Job[int]) error {
			if job.Args > 0 {
				<-open
			}
			done <- job.Args
			return nil
		})
		for n := range others + groups {
			enqueue(t, q, task(fmt.Sprint(n), n/others), task(fmt.Sprint(n), n/others))
		}
		work(t, q, queue.WorkerOptions{})
		for range 2 * others {
			suite.Wait(t, done, "a job")
		}
		d.Until(t, "SELECT count(*) FROM dblock_queue_key", groups)
		d.exec(t, d.sql("VACUUM dblock_queue_key", "DO 0")) // rows that come have the places of others
		var old []*sql.Tx
		for range groups {
			old = append(old, d.Tx(t, level, "SELECT count(*) FROM dblock_schema_version"))
		}
		close(open)
		for range 2 * groups {
			suite.Wait(t, done, "a job")
		}
		d.empty(t)
		for n, tx := range old {
			_, err := d.e.EnqueueTx(t.Context(), q, tx, task(fmt.Sprint(others+n), 2))
			if err != nil && level != sql.LevelReadCommitted {
				assert.ErrorIs(t, err, dblock.ErrConflict)
				continue
			}
			require.NoError(t, err)
			require.NoError(t, tx.Commit())
			suite.Wait(t, done, "the job")
		}
		d.empty(t)
	})
}

// promote promotes so many due jobs.
func promote(t *testing.T, q *queue.Queue, want int) {
	t.Helper()
	n := suite.Must(q.Promote(suite.Soon(t)))(t)
	assert.Equal(t, want, n, "promoted jobs")
}

// overdue writes rows of dblock_queue_scheduled alone, of jobs that were due an hour ago.
func (d *env) overdue(t *testing.T, jobs int, group string) {
	t.Helper()
	row := d.sql("now() - interval '1 hour', gen_random_uuid()",
		"UTC_TIMESTAMP(6) - INTERVAL 1 HOUR, UNHEX(REPLACE(UUID(), '-', ''))")
	ten := "(SELECT 0 AS d" + strings.Repeat(" UNION ALL SELECT 1", 9) + ")"
	d.exec(t, fmt.Sprintf("INSERT INTO dblock_queue_scheduled (run_at, job_id, queue, priority, group_key) "+
		"SELECT %s, 'default', 0, NULLIF('%s', '') FROM %s a, %[3]s b, %[3]s c, %[3]s d, %[3]s e LIMIT %[4]d",
		row, group, ten, jobs))
}

const dueBacklog = 20_000

// An urgent job that comes due is ready before most jobs that wait for their promotion, also if it
// came due in the same moment as many others and is the last one in their order.
func (mainTests) AnUrgentJobDoesNotWait(t *testing.T, d *env) {
	each(t, d, map[string]int{"Later": 1, "AnUrgentJobOfTheSameTimeIsFirst": 0}, func(t *testing.T, d *env, later int) {
		q := d.open(t, queue.Options{})
		d.overdue(t, dueBacklog, "")
		if later > 0 {
			enqueue(t, q, queue.Task{Kind: "note", Args: 1, Priority: -1, Delay: time.Microsecond})
		} else {
			last := "SELECT * FROM (SELECT job_id FROM dblock_queue_scheduled ORDER BY run_at DESC, job_id DESC LIMIT 1) l"
			d.exec(t, "UPDATE dblock_queue_scheduled SET priority = -1 WHERE job_id = ("+last+")")
		}
		promote(t, q, dueBacklog+later)
		before := d.Count(t, "SELECT count(*) FROM dblock_queue_ready r WHERE r.ready_at < "+
			"(SELECT u.ready_at FROM dblock_queue_ready u WHERE u.priority = -1)")
		assert.LessOrEqual(t, before, int64(dueBacklog/4), "jobs that are ready before the urgent one")
	})
}

// A locked group has more due jobs than one look takes. Jobs of other groups behind them are
// promoted.
func (mainTests) ALockedGroupHidesNoOthers(t *testing.T, d *env) {
	const backlog, others = 25_000, 3
	q := d.open(t, queue.Options{})
	enqueue(t, q, queue.Task{Kind: "note", Group: "locked"}) // so that the group has a row
	d.overdue(t, backlog, "locked")
	d.exec(t, "INSERT INTO dblock_queue_job "+
		"(job_id, queue, kind, priority, max_attempts, payload, group_key, group_most) "+
		"SELECT job_id, queue, 'note', priority, 1, '', group_key, 1 FROM dblock_queue_scheduled")
	release := d.lock(t, lockedGroup)
	for n := range others {
		enqueue(t, q, queue.Task{Kind: "note", Group: fmt.Sprint(n), Delay: time.Microsecond})
	}
	promote(t, q, others)
	d.rows(t, "ready", 1+others)
	release()
	promote(t, q, backlog)
}

// duplicateOf checks that err says that job has the key of the one task that was enqueued.
func duplicateOf(t *testing.T, id queue.ID, err error, job queue.ID, key string) {
	t.Helper()
	dup := suite.As[*queue.DuplicateError](t, err)
	assert.ErrorIs(t, err, queue.ErrDuplicate)
	assert.Equal(t, job, id)
	assert.Equal(t, []queue.Duplicate{{Task: 0, Key: key, Job: job}}, dup.Duplicates)
}

func (mainTests) AUniqueKeyHasOneJob(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	a := enqueue(t, q, queue.Task{Kind: "note", Args: 0, Unique: "a"})[0]
	id, err := q.Enqueue(t.Context(), queue.Task{Kind: "other", Args: 1, Unique: "a"})
	duplicateOf(t, id, err, a, "a")
	enqueue(t, q, queue.Task{Kind: "note", Unique: "a", Queue: "other"}, queue.Task{Kind: "note", Unique: "A"})
	made, err := q.EnqueueMany(t.Context(), []queue.Task{
		{Kind: "note", Args: 2}, {Kind: "note", Args: 3, Unique: "b"}, {Kind: "note", Args: 4, Unique: "a"},
		{Kind: "note", Args: 5, Unique: "b", Group: "g"}, {Kind: "note", Args: 6, Unique: "a"},
	})
	dup := suite.As[*queue.DuplicateError](t, err)
	assert.Equal(t, []queue.ID{made[0], made[1], a, made[1], a}, made)
	assert.Equal(t, []queue.Duplicate{
		{Task: 2, Key: "a", Job: a}, {Task: 3, Key: "b", Job: made[1]}, {Task: 4, Key: "a", Job: a},
	}, dup.Duplicates)
	d.rows(t, "job", 5)
	d.rows(t, "key", 0)
}

// twoAlive counts the unique keys that two jobs have.
const twoAlive = "SELECT count(*) FROM (SELECT queue, unique_key FROM dblock_queue_job WHERE unique_key IS NOT NULL " +
	"GROUP BY queue, unique_key HAVING count(*) > 1) x"
