package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/queue"
)

const keyGroups = 10 // of keysOfTheKilled

// A worker that is killed with the first jobs of groups: their places and keys are kept, they are done first, and of those that had no other
// attempt the next ones are let in.
func keysOutliveTheKilled(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	done := d.keysOfTheKilled(t, q, func(made []queue.ID, fourth queue.Task) {
		id, err := q.Enqueue(t.Context(), fourth)
		duplicateOf(t, id, err, made[3], "3")
	})
	for g := range keyGroups {
		want := "[0 1 2 3]"
		if g%2 == 0 {
			want = "[1 2 3]"
		}
		if got := fmt.Sprint(done[g]); got != want {
			t.Errorf("group %d was done as %v, want %v", g, got, want)
		}
	}
	enqueue(t, q, queue.Task{Kind: "other", Args: 1, Unique: "0"}, queue.Task{Kind: "other", Args: 1, Unique: "1"})
}

// controlKeysDieWithTheKilled is the same where keys and places are given back with the process that had them.
func controlKeysDieWithTheKilled(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	done := d.keysOfTheKilled(t, q, func(_ []queue.ID, fourth queue.Task) {
		for _, statement := range []string{
			"DELETE FROM dblock_queue_unique", "UPDATE dblock_queue_key SET taken = 4",
			"INSERT INTO dblock_queue_ready (queue, priority, job_id) SELECT queue, priority, job_id FROM dblock_queue_blocked",
			"DELETE FROM dblock_queue_blocked",
		} {
			d.exec(t, statement)
		}
		fourth.Group, fourth.Args = "", 1_000
		if _, err := q.Enqueue(t.Context(), fourth); err != nil {
			t.Errorf("the key is taken: %v", err)
		}
	})
	inOrder := 0
	for g := 1; g < keyGroups; g += 2 {
		if fmt.Sprint(done[g]) == "[0 1 2 3]" {
			inOrder++
		}
	}
	if inOrder == keyGroups/2 {
		t.Error("all were done in order: the test shows nothing")
	}
}

// keysOfTheKilled kills a worker that has the first job of each group, and has others do the rest: it returns what was done, by group.
func (d *env) keysOfTheKilled(t *testing.T, q *queue.Queue, then func(made []queue.ID, fourth queue.Task)) (done map[int][]int) {
	t.Helper()
	var tasks []queue.Task
	for n := range 4 {
		for g := range keyGroups {
			task := queue.Task{Kind: "note", Args: 100*g + n, Group: fmt.Sprint(g)}
			if n == 0 {
				task.Unique = fmt.Sprint(g)
			}
			if n == 0 && g%2 == 0 {
				task.MaxAttempts = 1
			}
			tasks = append(tasks, task)
		}
	}
	made, err := q.EnqueueMany(t.Context(), tasks)
	if err != nil {
		t.Fatal(err)
	}
	victim := d.startWorker(t)
	for range keyGroups {
		victim.Says(t, "began")
	}
	victim.Kill()
	then(made, tasks[3])
	var mu sync.Mutex
	done = make(map[int][]int)
	for range 2 {
		w := d.open(t, queue.Options{})
		handle(t, w, "note", func(_ context.Context, job queue.Job[int]) error {
			mu.Lock()
			defer mu.Unlock()
			done[job.Args/100] = append(done[job.Args/100], job.Args%100)
			if first := job.Args%100 == 0 && job.Args < 1_000; first != (job.Attempt == 2) {
				t.Errorf("job %d has attempt %d", job.Args, job.Attempt)
			}
			return nil
		})
		work(t, w, queue.WorkerOptions{Rescue: 100 * time.Millisecond})
	}
	d.empty(t)
	return done
}

// Connections of the producer and of the worker break anywhere: jobs are done in order, one at a time, and no key stays taken.
func keysSurviveLostReplies(t *testing.T, d *env) {
	l := d.keysAndLostReplies(t, func(g int) string { return fmt.Sprint(g) })
	if l.disorder > 0 || l.over > 0 {
		t.Errorf("%d not in order, %d times two at once", l.disorder, l.over)
	}
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_dead"); n != 0 {
		t.Errorf("%d are dead", n)
	}
	q := d.open(t, queue.Options{})
	enqueue(t, q, queue.Task{Kind: "note", Args: 3 * 100, Group: "0", Unique: "0"})
	handle(t, q, "note", nop)
	work(t, q, queue.WorkerOptions{})
	d.empty(t)
}

// controlLostRepliesWithoutGroups is the same without the groups.
func controlLostRepliesWithoutGroups(t *testing.T, d *env) {
	if l := d.keysAndLostReplies(t, func(int) string { return "" }); l.disorder == 0 || l.over == 0 {
		t.Errorf("without groups %d not in order, %d times two at once: the test shows nothing", l.disorder, l.over)
	}
}

// keysAndLostReplies enqueues jobs and does them, while connections break, and returns what was seen of three groups.
func (d *env) keysAndLostReplies(t *testing.T, group func(g int) string) *groupLog {
	t.Helper()
	dialer := new(faultconn.Dialer)
	q, closePool, err := d.e.OpenOn(t.Context(), d.dsn, dialer, queue.Options{TTL: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer closePool()
	defer func() { _ = q.Close(suite.Soon(t)) }()
	l := newLog(1)
	handle(t, q, "note", l.inTurn)
	stop := work(t, q, queue.WorkerOptions{Poll: 10 * time.Millisecond, Concurrency: 4, Backoff: func(int, error) time.Duration { return 0 }})
	unknown, sure := 0, 0
	for n := range 45 {
		mode := faultconn.CutAfter
		if n%4 == 0 {
			mode = faultconn.CutBefore
		}
		dialer.Arm(n%11+1, mode, nil)
		var tasks []queue.Task
		for i := range 3 {
			task := queue.Task{Kind: "note", Args: 3*(3*n+i) + n%3, Group: group(n % 3)}
			if i == 0 {
				task.Unique = fmt.Sprint(n % 5)
			}
			tasks = append(tasks, task)
		}
		_, err := q.EnqueueMany(suite.Soon(t), tasks)
		switch {
		case err == nil, errors.Is(err, queue.ErrDuplicate):
			sure++
		case errors.Is(err, dblock.ErrOutcomeUnknown), errors.Is(err, dblock.ErrUnavailable), errors.Is(err, dblock.ErrBusy):
			unknown++
		default:
			t.Error(err)
		}
	}
	dialer.Disarm()
	d.empty(t)
	if sure == 0 {
		t.Error("nothing was enqueued for certain")
	}
	t.Logf("%d for certain, %d not", sure, unknown)
	if err := stop(); err != nil {
		t.Error(err)
	}
	return l
}

// inTurn is the handler of job n of group n%3.
func (l *groupLog) inTurn(_ context.Context, job queue.Job[int]) error {
	g, n := fmt.Sprint(job.Args%3), job.Args/3+1
	l.mu.Lock()
	if l.running[g]++; l.running[g] > l.limit {
		l.over++
	}
	l.mu.Unlock()
	time.Sleep(2 * time.Millisecond)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running[g]--
	if job.Attempt == 1 && n%4 == 0 {
		return errBadDay
	}
	if n <= l.done[g] {
		l.disorder++
	}
	l.done[g] = n
	return nil
}
