package queue

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

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
	mu       sync.Mutex
	running  map[string]int
	most     map[string]int
	next     map[string]int // N of the next job, by group and producer
	done     map[string]int
	disorder int
	over     int // more than limit were running
	limit    int
	together int                      // the first jobs of a group wait until so many run
	gather   map[string]chan struct{} // by group: closed once they do
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
	var producing sync.WaitGroup
	for p := range producers {
		producing.Go(func() {
			for n := 0; n < each; n += 2 {
				var tasks []queue.Task
				for i := range 2 * groups {
					g := fmt.Sprint((p + i) % groups)
					m := member{Group: g, Producer: fmt.Sprint(p), N: n + i/groups}
					tasks = append(tasks, queue.Task{Kind: "note", Args: m, Group: g})
					change(&tasks[i])
				}
				_, err := queues[p%len(queues)].EnqueueMany(suite.Soon(t), tasks)
				assert.NoError(t, err)
			}
		})
	}
	producing.Wait()
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
	q, h := d.open(t, queue.Options{}), newHolder()
	handle(t, q, "note", h.handle)
	work(t, q, queue.WorkerOptions{Promote: 10 * time.Millisecond, Poll: time.Minute})
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
	for n := range waiting + late {
		task := queue.Task{Kind: "note", Args: n, Group: "g"}
		if n >= waiting {
			task.AtMost = limit
		}
		enqueue(t, q, task)
	}
	work(t, q, queue.WorkerOptions{Concurrency: 1, Exchanges: 1})
	for n := range waiting + late { // admitted jobs begin in any order
		assert.Less(t, wait(t, began, "a job"), n+limit)
	}
	d.empty(t)
}

func groupsGoOnWhateverEndsTheirJobs(t *testing.T, d *env) {
	q, done := d.open(t, queue.Options{}), make(chan int, 10)
	ends := [][]error{ // of each job's attempts
		{nil}, {queue.Discard(errBadDay)}, {queue.Cancel(errBadDay)}, {errBadDay, errBadDay},
		{queue.Snooze(time.Millisecond), nil}, {nil},
	}
	runs := make([]int, len(ends)) // one job runs at a time
	handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
		n := job.Args
		runs[n]++
		if runs[n] == len(ends[n]) {
			done <- n
		}
		return ends[n][runs[n]-1]
	})
	work(t, q, queue.WorkerOptions{Backoff: fast, Promote: 10 * time.Millisecond})
	enqueueMany(t, q, repeat(len(ends), queue.Task{Kind: "note", Group: "g", MaxAttempts: 2}))
	var order []int
	for range ends {
		order = append(order, wait(t, done, "a job"))
	}
	assert.True(t, slices.IsSorted(order), "%v", order)
	d.empty(t)
}
