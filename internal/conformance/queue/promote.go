package queue

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/queue"
)

// overdue schedules so many jobs whose time came an hour ago, of a group or of none, by hand: the rows of dblock_queue_scheduled alone.
func (d *env) overdue(t *testing.T, jobs int, group string) {
	t.Helper()
	digits := "(SELECT 0 AS d" + strings.Repeat(" UNION ALL SELECT 1", 9) + ")"
	id, hourAgo := "gen_random_uuid()", "now() - interval '1 hour'"
	if d.e.Kind != "postgres" {
		id, hourAgo = "UNHEX(REPLACE(UUID(), '-', ''))", "UTC_TIMESTAMP(6) - INTERVAL 1 HOUR"
	}
	key := "NULL"
	if group != "" {
		key = "'" + group + "'"
	}
	d.exec(t, fmt.Sprintf("INSERT INTO dblock_queue_scheduled (run_at, job_id, queue, priority, group_key) "+
		"SELECT %s, %s, 'default', 0, %s FROM %s a CROSS JOIN %s b CROSS JOIN %s c CROSS JOIN %s d CROSS JOIN %s e LIMIT %d",
		hourAgo, id, key, digits, digits, digits, digits, digits, jobs))
}

// An urgent job whose time has come is ready before most of those that wait for their promotion.
func anUrgentJobDoesNotWaitForABacklog(t *testing.T, d *env) {
	const backlog = 20_000
	q := d.open(t, queue.Options{})
	d.overdue(t, backlog, "")
	enqueue(t, q, queue.Task{Kind: "note", Args: 1, Priority: -1, Delay: time.Microsecond})
	n, err := q.Promote(suite.Soon(t))
	if err != nil || n != backlog+1 {
		t.Fatalf("%d jobs are promoted, %v", n, err)
	}
	first := d.count(t, "SELECT count(*) FROM dblock_queue_ready r WHERE r.ready_at < (SELECT u.ready_at FROM dblock_queue_ready u WHERE u.priority = -1)")
	if first > backlog/4 {
		t.Errorf("%d of %d other jobs are ready before the urgent one", first, backlog)
	}
}

// An urgent job that came due in the same moment as many others, and last in their order, is ready before most of them.
func anUrgentJobOfTheSameTimeIsFirst(t *testing.T, d *env) {
	const backlog = 20_000
	q := d.open(t, queue.Options{})
	d.overdue(t, backlog, "")
	last := "SELECT * FROM (SELECT job_id FROM dblock_queue_scheduled ORDER BY run_at DESC, job_id DESC LIMIT 1) l"
	d.exec(t, "UPDATE dblock_queue_scheduled SET priority = -1 WHERE job_id = ("+last+")")
	if n, err := q.Promote(suite.Soon(t)); err != nil || n != backlog {
		t.Fatalf("%d jobs are promoted, %v", n, err)
	}
	first := d.count(t, "SELECT count(*) FROM dblock_queue_ready r WHERE r.ready_at < (SELECT u.ready_at FROM dblock_queue_ready u WHERE u.priority = -1)")
	if first > backlog/4 {
		t.Errorf("%d of %d other jobs are ready before the urgent one", first, backlog)
	}
}

// A group whose row another transaction has locked has more jobs that are due than one look takes. The jobs of other groups behind them are
// promoted meanwhile. The locked group's are once the lock is released.
func aLockedGroupHidesNoOthers(t *testing.T, d *env) {
	const backlog, others = 25_000, 3
	q := d.open(t, queue.Options{})
	enqueue(t, q, queue.Task{Kind: "note", Args: 0, Group: "locked"}) // so that the group has a row
	d.overdue(t, backlog, "locked")
	d.exec(t, "INSERT INTO dblock_queue_job (job_id, queue, kind, priority, max_attempts, payload, group_key, group_most) "+
		"SELECT job_id, queue, 'note', priority, 1, '', group_key, 1 FROM dblock_queue_scheduled")
	tx := d.openTx(t)
	if _, err := tx.ExecContext(t.Context(), "SELECT queue FROM dblock_queue_key WHERE queue = 'default' AND group_key = 'locked' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	for n := range others {
		enqueue(t, q, queue.Task{Kind: "note", Args: n, Group: fmt.Sprint(n), Delay: time.Microsecond})
	}
	if n, err := q.Promote(suite.Soon(t)); err != nil || n != others {
		t.Errorf("%d jobs are promoted, %v; want the %d of other groups", n, err, others)
	}
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_ready"); n != 1+others {
		t.Errorf("%d jobs are ready", n)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if n, err := q.Promote(suite.Soon(t)); err != nil || n != backlog {
		t.Errorf("%d jobs of the group are promoted, %v; want %d", n, err, backlog)
	}
}
