package queue

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/queue"
)

// promote promotes so many due jobs.
func promote(t *testing.T, q *queue.Queue, want int) {
	t.Helper()
	n, err := q.Promote(suite.Soon(t))
	require.NoError(t, err)
	assert.Equal(t, want, n, "promoted jobs")
}

// overdue writes rows of dblock_queue_scheduled alone, of jobs that were due an hour ago.
func (d *env) overdue(t *testing.T, jobs int, group string) {
	t.Helper()
	id, hourAgo := "gen_random_uuid()", "now() - interval '1 hour'"
	if d.e.Kind != devdb.Postgres {
		id, hourAgo = "UNHEX(REPLACE(UUID(), '-', ''))", "UTC_TIMESTAMP(6) - INTERVAL 1 HOUR"
	}
	ten := "(SELECT 0 AS d" + strings.Repeat(" UNION ALL SELECT 1", 9) + ")"
	d.exec(t, fmt.Sprintf("INSERT INTO dblock_queue_scheduled (run_at, job_id, queue, priority, group_key) "+
		"SELECT %s, %s, 'default', 0, NULLIF('%s', '') FROM %s a, %[4]s b, %[4]s c, %[4]s d, %[4]s e LIMIT %[5]d",
		hourAgo, id, group, ten, jobs))
}

const dueBacklog = 20_000

// An urgent job that comes due is ready before most jobs that wait for their promotion.
func anUrgentJobDoesNotWaitForABacklog(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	d.overdue(t, dueBacklog, "")
	enqueue(t, q, queue.Task{Kind: "note", Args: 1, Priority: -1, Delay: time.Microsecond})
	promote(t, q, dueBacklog+1)
	d.urgentIsFirst(t)
}

// An urgent job came due in the same moment as many others, and is the last one in their order.
func anUrgentJobOfTheSameTimeIsFirst(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	d.overdue(t, dueBacklog, "")
	last := "SELECT * FROM (SELECT job_id FROM dblock_queue_scheduled ORDER BY run_at DESC, job_id DESC LIMIT 1) l"
	d.exec(t, "UPDATE dblock_queue_scheduled SET priority = -1 WHERE job_id = ("+last+")")
	promote(t, q, dueBacklog)
	d.urgentIsFirst(t)
}

func (d *env) urgentIsFirst(t *testing.T) {
	t.Helper()
	before := d.count(t, "SELECT count(*) FROM dblock_queue_ready r WHERE r.ready_at < "+
		"(SELECT u.ready_at FROM dblock_queue_ready u WHERE u.priority = -1)")
	assert.LessOrEqual(t, before, int64(dueBacklog/4), "jobs that are ready before the urgent one")
}

// A locked group has more due jobs than one look takes. Jobs of other groups behind them are
// promoted.
func aLockedGroupHidesNoOthers(t *testing.T, d *env) {
	const backlog, others = 25_000, 3
	q := d.open(t, queue.Options{})
	enqueue(t, q, queue.Task{Kind: "note", Group: "locked"}) // so that the group has a row
	d.overdue(t, backlog, "locked")
	d.exec(t, "INSERT INTO dblock_queue_job "+
		"(job_id, queue, kind, priority, max_attempts, payload, group_key, group_most) "+
		"SELECT job_id, queue, 'note', priority, 1, '', group_key, 1 FROM dblock_queue_scheduled")
	tx := d.lock(t, lockedGroup)
	for n := range others {
		enqueue(t, q, queue.Task{Kind: "note", Group: fmt.Sprint(n), Delay: time.Microsecond})
	}
	promote(t, q, others)
	d.rows(t, "ready", 1+others)
	require.NoError(t, tx.Rollback())
	promote(t, q, backlog)
}

// A hundred locked groups have due jobs. Jobs without a group, and of other groups, are promoted.
func lockedGroupsDelayNoOthers(t *testing.T, d *env) {
	const locked = 100
	q := d.open(t, queue.Options{})
	tasks := repeat(locked, queue.Task{Kind: "note"})
	for n := range tasks {
		tasks[n].Group = fmt.Sprint("locked ", n)
	}
	enqueueMany(t, q, tasks) // so that the groups have rows
	for n := range tasks {
		tasks[n].Delay = time.Microsecond
	}
	enqueueMany(t, q, tasks)
	tx := d.lock(t, "dblock_queue_key")
	for n := range 3 {
		enqueue(t, q, queue.Task{Kind: "note", Delay: time.Microsecond},
			queue.Task{Kind: "note", Group: fmt.Sprint(n), Delay: time.Microsecond})
		promote(t, q, 2)
	}
	d.rows(t, "scheduled", locked)
	require.NoError(t, tx.Rollback())
	promoted := 0
	suite.Until(t, "the jobs of the groups are promoted", func() bool {
		promoted += suite.Must(q.Promote(suite.Soon(t)))(t)
		return promoted >= locked
	})
	d.rows(t, "blocked", locked)
}
