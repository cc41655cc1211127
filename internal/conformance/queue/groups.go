package queue

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/queue"
)

// processes opens four processes, each with two workers.
func (d *env) processes(t *testing.T, register func(*queue.Queue)) (queues []*queue.Queue) {
	t.Helper()
	for range 4 {
		q := d.open(t, queue.Options{})
		register(q)
		for range 2 {
			work(t, q, queue.WorkerOptions{Concurrency: 20, Backoff: fast, Promote: 20 * time.Millisecond})
		}
		queues = append(queues, q)
	}
	return queues
}

// member is the arguments of a job of a group: the N-th one of its producer.
type member struct {
	Group, Producer string
	N               int
}

// groupLog counts what runs together, and what runs before earlier jobs of its group and producer.
type groupLog struct {
	mu              sync.Mutex
	limit, together int                      // the first jobs of a group wait until so many run together
	gather          map[string]chan struct{} // by group: closed once they do
	running, most   map[string]int           // by group
	next, done      map[string]int           // by group and producer: N of the next job, and how many were done
	over, disorder  int                      // jobs beside limit others, and out of order
}

func newGroupLog(limit, together int) *groupLog {
	l := &groupLog{limit: limit, together: together, gather: map[string]chan struct{}{}}
	l.running, l.most, l.next, l.done = map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}
	for g := range groups {
		if together > 0 {
			l.gather[fmt.Sprint(g)] = make(chan struct{})
		}
	}
	return l
}

// handle works for a moment. Every fourth job fails in its first attempt.
func (l *groupLog) handle(ctx context.Context, job queue.Job[member]) error {
	m := job.Args
	l.mu.Lock()
	l.running[m.Group]++
	n := l.running[m.Group]
	l.most[m.Group] = max(l.most[m.Group], n)
	if n > l.limit {
		l.over++
	}
	gather := l.gather[m.Group]
	if gather != nil && n == l.together {
		close(gather)
		l.gather[m.Group] = nil
	}
	l.mu.Unlock()
	if gather != nil {
		select {
		case <-gather:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	time.Sleep(2 * time.Millisecond)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running[m.Group]--
	if job.Attempt == 1 && m.N%4 == 2 {
		return errBadDay
	}
	by := m.Group + "/" + m.Producer
	if m.N < l.next[by] {
		l.disorder++
	}
	l.next[by] = m.N + 1
	l.done[by]++
	return nil
}

const groups = 3

// runGroups has producers enqueue jobs of three groups, and processes run all of them.
func (d *env) runGroups(t *testing.T, l *groupLog, change func(*queue.Task)) {
	t.Helper()
	const producers, each = 10, 10
	queues := d.processes(t, func(q *queue.Queue) { handle(t, q, "note", l.handle) })
	suite.Crowd(producers, func(p int) {
		for n := 0; n < each; n += 2 {
			var tasks []queue.Task
			for i := range 2 * groups {
				g := fmt.Sprint((p + i) % groups)
				m := member{Group: g, Producer: fmt.Sprint(p), N: n + i/groups}
				tasks = append(tasks, queue.Task{Kind: "note", Args: m, Group: g})
				change(&tasks[i])
			}
			produce(t, queues[p%len(queues)], tasks...)
		}
	})
	d.empty(t)
	assert.Len(t, l.done, groups*producers)
	for by, n := range l.done {
		assert.Equal(t, each, n, by)
	}
}

func orderedJobsAreExact(t *testing.T, d *env) {
	l := newGroupLog(1, 0)
	d.runGroups(t, l, func(*queue.Task) {})
	assert.Zero(t, l.over, "jobs beside another one")
	assert.Zero(t, l.disorder, "jobs out of order")
}

func controlJobsWithoutAGroup(t *testing.T, d *env) {
	l := newGroupLog(1, 2)
	d.runGroups(t, l, func(task *queue.Task) { task.Group = "" })
	assert.NotZero(t, l.over, "jobs beside another one")
	assert.NotZero(t, l.disorder, "jobs out of order")
}

func limitedJobsAreExact(t *testing.T, d *env) {
	l := newGroupLog(4, 4)
	d.runGroups(t, l, func(task *queue.Task) {
		task.AtMost = 4
		if task.Args.(member).N%5 == 0 {
			task.Delay = 10 * time.Millisecond
		}
	})
	assert.Zero(t, l.over, "jobs beside four others")
	assert.Equal(t, map[string]int{"0": 4, "1": 4, "2": 4}, l.most)
}

func controlALimitThatIsRaised(t *testing.T, d *env) {
	l := newGroupLog(4, 5)
	d.runGroups(t, l, func(task *queue.Task) { task.AtMost = 40 })
	assert.NotZero(t, l.over, "jobs beside four others")
}

// Three jobs of a group run together, and each end admits the next one. A delayed job is admitted
// once it is due.
func aGroupIsLetInOneByOne(t *testing.T, d *env) {
	h := newHolder()
	q := d.process(t, queue.Options{}, queue.WorkerOptions{Promote: 10 * time.Millisecond, Poll: time.Minute}, h.handle)
	tasks := repeat(8, queue.Task{Kind: "note", Group: "g", AtMost: 3})
	for n := range tasks {
		tasks[n].Priority = int16(-n)
	}
	tasks[7].Delay = time.Millisecond
	made := enqueue(t, q, tasks...)
	var first []queue.ID
	for _, job := range h.has(t, 3) {
		first = append(first, job.ID)
	}
	assert.ElementsMatch(t, made[:3], first)
	d.until(t, "SELECT count(*) FROM dblock_queue_blocked", 5)
	for _, next := range made[3:] {
		assert.Empty(t, h.began, "a fourth job began")
		h.end <- nil
		assert.Equal(t, next, h.has(t, 1)[0].ID)
	}
	close(h.end)
	d.empty(t)
}

// A group's limit is raised while jobs wait. They begin before jobs that come later.
func aRaisedLimitLetsTheFirstIn(t *testing.T, d *env) {
	const waiting, late, limit = 40, 4, 3
	q, began := d.open(t, queue.Options{}), make(chan int, waiting+late)
	handle(t, q, "note", record(began))
	tasks := repeat(waiting+late, queue.Task{Kind: "note", Group: "g"})
	for n := waiting; n < len(tasks); n++ {
		tasks[n].AtMost = limit
	}
	enqueue(t, q, tasks...)
	work(t, q, queue.WorkerOptions{Concurrency: 1, Exchanges: 1})
	for n := range waiting + late { // admitted jobs begin in any order
		assert.Less(t, wait(t, began, "a job"), n+limit)
	}
	d.empty(t)
}

func groupsGoOnWhateverEndsTheirJobs(t *testing.T, d *env) {
	done := make(chan int, 10)
	ends := [][]error{ // of each job's attempts
		{nil}, {queue.Discard(errBadDay)}, {queue.Cancel(errBadDay)}, {errBadDay, errBadDay},
		{queue.Snooze(time.Millisecond), nil}, {nil},
	}
	runs := make([]int, len(ends)) // one job runs at a time
	q := d.process(t, queue.Options{}, quickly, func(_ context.Context, job queue.Job[int]) error {
		n := job.Args
		if runs[n]++; runs[n] == len(ends[n]) {
			done <- n
		}
		return ends[n][runs[n]-1]
	})
	enqueueMany(t, q, repeat(len(ends), queue.Task{Kind: "note", Group: "g", MaxAttempts: 2}))
	var order []int
	for range ends {
		order = append(order, wait(t, done, "a job"))
	}
	assert.True(t, slices.IsSorted(order), "%v", order)
	d.empty(t)
}

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
	row := d.sql("now() - interval '1 hour', gen_random_uuid()",
		"UTC_TIMESTAMP(6) - INTERVAL 1 HOUR, UNHEX(REPLACE(UUID(), '-', ''))")
	ten := "(SELECT 0 AS d" + strings.Repeat(" UNION ALL SELECT 1", 9) + ")"
	d.exec(t, fmt.Sprintf("INSERT INTO dblock_queue_scheduled (run_at, job_id, queue, priority, group_key) "+
		"SELECT %s, 'default', 0, NULLIF('%s', '') FROM %s a, %[3]s b, %[3]s c, %[3]s d, %[3]s e LIMIT %[4]d",
		row, group, ten, jobs))
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
