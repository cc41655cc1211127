package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/queue"
)

// A worker that is killed with the first jobs of groups: their places and keys are kept, they are done first, and of those that had no other
// attempt the next ones are let in.
func keysOutliveTheKilled(t *testing.T, d *desk) {
	const groups, each = 10, 4
	q := d.open(t, queue.Options{})
	var tasks []queue.Task
	for n := range each {
		for g := range groups {
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
	for range groups {
		victim.says(t, "began")
	}
	victim.kill()
	id, err := q.Enqueue(t.Context(), tasks[3])
	duplicateOf(t, id, err, made[3], "3")
	var mu sync.Mutex
	done := make(map[int][]int)
	for range 2 {
		w := d.open(t, queue.Options{})
		handle(t, w, "note", func(_ context.Context, job queue.Job[int]) error {
			mu.Lock()
			defer mu.Unlock()
			done[job.Args/100] = append(done[job.Args/100], job.Args%100)
			if first := job.Args%100 == 0; first != (job.Attempt == 2) {
				t.Errorf("job %d has attempt %d", job.Args, job.Attempt)
			}
			return nil
		})
		work(t, w, queue.WorkerOptions{Rescue: 100 * time.Millisecond})
	}
	d.empty(t)
	mu.Lock()
	defer mu.Unlock()
	for g := range groups {
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

// Connections of the producer and of the worker break anywhere: jobs are done in order, one at a time, and no key stays taken.
func keysSurviveLostReplies(t *testing.T, d *desk) {
	dialer := new(faultconn.Dialer)
	q, closePool, err := d.e.OpenOn(t.Context(), d.dsn, dialer, queue.Options{TTL: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer closePool()
	defer func() { _ = q.Close(soon(t)) }()
	var mu sync.Mutex
	last, running := make(map[int]int), make(map[int]int)
	handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
		g, n := job.Args%3, job.Args/3+1
		mu.Lock()
		defer mu.Unlock()
		running[g]++
		defer func() { running[g]-- }()
		if job.Attempt == 1 && n%4 == 0 {
			return errBadDay
		}
		if n <= last[g] {
			t.Errorf("group %d: %d after %d", g, n, last[g])
		}
		last[g] = n
		return nil
	})
	work(t, q, queue.WorkerOptions{Poll: 10 * time.Millisecond, Concurrency: 4, Backoff: func(int, error) time.Duration { return 0 }})
	unknown, sure := 0, 0
	for n := range 45 {
		mode := faultconn.CutAfter
		if n%4 == 0 {
			mode = faultconn.CutBefore
		}
		dialer.Arm(n%11+1, mode, nil)
		_, err := q.Enqueue(soon(t), queue.Task{Kind: "note", Args: n, Group: fmt.Sprint(n % 3), Unique: fmt.Sprint(n % 5)})
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
	enqueue(t, q, queue.Task{Kind: "note", Args: 3 * 100, Group: "0", Unique: "0"})
	d.empty(t)
	if last[0] != 101 {
		t.Errorf("the last one is %d", last[0])
	}
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_dead"); n != 0 {
		t.Errorf("%d are dead", n)
	}
}
