package queue

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/queue"
)

// crowd is several processes, each with two workers.
func (d *env) crowd(t *testing.T, processes int, register func(*queue.Queue)) (queues []*queue.Queue) {
	t.Helper()
	for range processes {
		q := d.open(t, queue.Options{})
		register(q)
		for range 2 {
			work(t, q, queue.WorkerOptions{Concurrency: 20, Backoff: fast, Promote: 20 * time.Millisecond})
		}
		queues = append(queues, q)
	}
	return queues
}

// stage is what a job of a group is told.
type stage struct {
	Group, From string // From: who has enqueued it
	N           int    // which one of those of From this is
}

// groupLog is what was seen of groups.
type groupLog struct {
	mu       sync.Mutex
	running  map[string]int
	most     map[string]int
	done     map[string]int // by group and From: the last one
	disorder int
	over     int // more than limit were running
	limit    int
	together int                      // the first jobs of a group wait until so many run
	gather   map[string]chan struct{} // by group: closed when they do
}

func newLog(limit int) *groupLog {
	return &groupLog{running: make(map[string]int), most: make(map[string]int), done: make(map[string]int), limit: limit}
}

// gathering has the first jobs of three groups wait until so many of their group run.
func (l *groupLog) gathering(together int) *groupLog {
	l.together = together
	l.gather = map[string]chan struct{}{"0": make(chan struct{}), "1": make(chan struct{}), "2": make(chan struct{})}
	return l
}

// handler works for a moment, and fails now and then.
func (l *groupLog) handler(ctx context.Context, job queue.Job[stage]) error {
	s := job.Args
	l.mu.Lock()
	l.running[s.Group]++
	l.most[s.Group] = max(l.most[s.Group], l.running[s.Group])
	if l.running[s.Group] > l.limit {
		l.over++
	}
	here := l.gather[s.Group]
	if here != nil && l.running[s.Group] == l.together {
		close(here)
		l.gather[s.Group] = nil
	}
	l.mu.Unlock()
	if here != nil {
		select {
		case <-here:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	time.Sleep(2 * time.Millisecond)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running[s.Group]--
	if job.Attempt == 1 && s.N%9 == 4 {
		return errBadDay
	}
	by := s.Group + "/" + s.From
	if l.done[by] != s.N {
		l.disorder++
	}
	l.done[by]++
	return nil
}

// throng has sixteen producers enqueue jobs of groups, and eight workers do them.
func (d *env) throng(t *testing.T, l *groupLog, groups int, task func(queue.Task) queue.Task) {
	t.Helper()
	const producers, each = 16, 12
	queues := d.crowd(t, 4, func(q *queue.Queue) { handle(t, q, "note", l.handler) })
	var producing sync.WaitGroup
	for p := range producers {
		producing.Go(func() {
			for n := range each / 2 {
				var tasks []queue.Task
				for i := range 2 * groups {
					g := fmt.Sprint((p + i) % groups)
					s := stage{Group: g, From: fmt.Sprint(p), N: 2*n + i/groups}
					tasks = append(tasks, task(queue.Task{Kind: "note", Args: s, Group: g}))
				}
				if _, err := queues[p%len(queues)].EnqueueMany(suite.Soon(t), tasks); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	producing.Wait()
	d.empty(t)
	for g := range groups {
		for p := range producers {
			if n := l.done[fmt.Sprintf("%d/%d", g, p)]; n != each {
				t.Errorf("group %d, producer %d: %d of %d are done", g, p, n, each)
			}
		}
	}
}

func orderedJobsAreExact(t *testing.T, d *env) {
	l := newLog(1)
	d.throng(t, l, 3, func(task queue.Task) queue.Task { return task })
	if l.over > 0 || l.disorder > 0 {
		t.Errorf("%d times two at once, %d not in order", l.over, l.disorder)
	}
}

func controlJobsWithoutAGroup(t *testing.T, d *env) {
	l := newLog(1).gathering(2)
	d.throng(t, l, 3, func(task queue.Task) queue.Task {
		task.Group = ""
		return task
	})
	if l.over == 0 || l.disorder == 0 {
		t.Errorf("without groups %d times two at once, %d not in order: the test shows nothing", l.over, l.disorder)
	}
}

func limitedJobsAreExact(t *testing.T, d *env) {
	l := newLog(4).gathering(4)
	d.throng(t, l, 3, func(task queue.Task) queue.Task {
		task.AtMost = 4
		if task.Args.(stage).N%5 == 0 {
			task.Delay = 10 * time.Millisecond
		}
		return task
	})
	if l.over > 0 {
		t.Errorf("%d times more than four at once", l.over)
	}
	for g, most := range l.most {
		if most != 4 {
			t.Errorf("group %s: %d at once at most", g, most)
		}
	}
}

func controlALimitThatIsRaised(t *testing.T, d *env) {
	l := newLog(4).gathering(5)
	d.throng(t, l, 3, func(task queue.Task) queue.Task {
		task.AtMost = 40
		return task
	})
	if l.over == 0 {
		t.Error("never more than four at once: the test shows nothing")
	}
}

// Three at once, and with each that ends the next; a delayed one comes when its time has come.
func aGroupIsLetInOneByOne(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	began, end := make(chan int, 100), make(chan error)
	handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
		began <- job.Args
		return <-end
	})
	work(t, q, queue.WorkerOptions{Promote: 10 * time.Millisecond, Poll: time.Minute})
	for n := range 7 {
		enqueue(t, q, queue.Task{Kind: "note", Args: n, Group: "g", AtMost: 3, Priority: int16(-n)})
	}
	enqueue(t, q, queue.Task{Kind: "note", Args: 7, Group: "g", AtMost: 3, Delay: time.Millisecond})
	seen := make(map[int]bool)
	for range 3 {
		seen[wait(t, began, "a job")] = true
	}
	if !seen[0] || !seen[1] || !seen[2] {
		t.Errorf("%v began", seen)
	}
	d.until(t, "SELECT count(*) FROM dblock_queue_blocked", 5)
	for n := 3; n < 8; n++ {
		if len(began) > 0 {
			t.Error("a fourth began")
		}
		end <- nil
		if got := wait(t, began, "the next"); got != n {
			t.Errorf("%d is let in, want %d", got, n)
		}
	}
	for range 3 {
		end <- nil
	}
	d.empty(t)
}

// A limit is raised while jobs wait: they begin before those that come later.
func aRaisedLimitLetsTheFirstIn(t *testing.T, d *env) {
	const waiting, late, limit = 40, 4, 3
	q := d.open(t, queue.Options{})
	began := make(chan int, waiting+late)
	handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
		began <- job.Args
		return nil
	})
	for n := range waiting {
		enqueue(t, q, queue.Task{Kind: "note", Args: n, Group: "g"})
	}
	for n := range late {
		enqueue(t, q, queue.Task{Kind: "note", Args: waiting + n, Group: "g", AtMost: limit})
	}
	work(t, q, queue.WorkerOptions{Concurrency: 1})
	for n := range waiting + late {
		if got := wait(t, began, "a job"); got >= n+limit { // the first of the group are let in, and may begin in any order
			t.Fatalf("job %d began as number %d", got, n)
		}
	}
	d.empty(t)
}

// Whatever ends a job lets the next one in.
func groupsGoOnWhateverEndsTheirJobs(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	var mu sync.Mutex
	var done []int
	ends := []error{nil, queue.Discard(errBadDay), queue.Cancel(errBadDay), errBadDay, queue.Snooze(time.Millisecond), nil}
	snoozed := false
	handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
		mu.Lock()
		defer mu.Unlock()
		if job.Args == 4 && snoozed {
			done = append(done, job.Args)
			return nil
		}
		snoozed = snoozed || job.Args == 4
		if job.Args != 4 && (job.Args != 3 || job.Attempt == 2) {
			done = append(done, job.Args)
		}
		return ends[job.Args]
	})
	work(t, q, queue.WorkerOptions{Backoff: fast, Promote: 10 * time.Millisecond})
	var tasks []queue.Task
	for n := range ends {
		tasks = append(tasks, queue.Task{Kind: "note", Args: n, Group: "g", MaxAttempts: 2})
	}
	if _, err := q.EnqueueMany(t.Context(), tasks); err != nil {
		t.Fatal(err)
	}
	d.empty(t)
	mu.Lock()
	defer mu.Unlock()
	if fmt.Sprint(done) != "[0 1 2 3 4 5]" {
		t.Errorf("done in the order %v", done)
	}
}
