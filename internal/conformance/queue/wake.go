package queue

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock/queue"
)

// RunHerald runs what holds of engines that tell other processes of jobs.
func (e Queue) RunHerald(t *testing.T) {
	for name, test := range map[string]func(*testing.T, *env){
		"WakesOtherProcesses":       wakesOtherProcesses,
		"TellsOfJobsInTransactions": tellsOfJobsInTransactions,
		"TellsWhoeverIsToCancel":    tellsWhoeverIsToCancel,
		"QuietOnesTellNobody":       quietOnesTellNobody,
		"ABurstIsToldAFewTimes":     aBurstIsToldAFewTimes,
		"ListensAgain":              listensAgain,
		"ListensWhileItWorks":       listensWhileItWorks,
		"SchemasDontHearEachOther":  schemasDontHearEachOther,
		"ManyShareWhatTheyHear":     manyShareWhatTheyHear,
		"WorksBehindAPooler":        worksBehindAPooler,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, e.env(t))
		})
	}
}

// rarely is a worker that polls so rarely that what it does within a test it was told of.
var rarely = queue.WorkerOptions{Poll: time.Minute}

// unpolled waits for a job that no poll finds: the next one is half a minute away at least.
func unpolled[T any](t *testing.T, from <-chan T, what string) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(20 * time.Second):
		t.Fatalf("nobody was told of %s", what)
	}
	return got
}

func (d *env) enqueueTx(t *testing.T, q *queue.Queue, end func(*sql.Tx) error, tasks ...queue.Task) {
	t.Helper()
	tx, err := d.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.e.EnqueueTx(t.Context(), q, tx, tasks...); err != nil {
		t.Fatal(err)
	}
	if err := end(tx); err != nil {
		t.Fatal(err)
	}
}

func wakesOtherProcesses(t *testing.T, d *env) {
	done := make(chan int, 10)
	d.worker(t, queue.Options{}, rarely, done)
	q := d.open(t, queue.Options{})
	ctx := t.Context()
	for n, enqueue := range []func(queue.Task) error{
		func(task queue.Task) error { _, err := q.Enqueue(ctx, task); return err },
		func(task queue.Task) error {
			_, err := q.EnqueueMany(ctx, []queue.Task{{Kind: "x", Queue: "other"}, task})
			return err
		},
		func(task queue.Task) error {
			task.Unique, task.Group = "u", "g"
			_, err := q.Enqueue(ctx, task)
			return err
		},
		func(task queue.Task) error { d.enqueueTx(t, q, (*sql.Tx).Commit, task); return nil },
		func(task queue.Task) error {
			task.Unique, task.Group = "v", "h"
			d.enqueueTx(t, q, (*sql.Tx).Commit, task)
			return nil
		},
		func(task queue.Task) error {
			err := q.Pause(ctx, "")
			if err == nil {
				_, err = q.Enqueue(ctx, task)
			}
			return errors.Join(err, q.Resume(ctx, ""))
		},
		func(task queue.Task) error {
			task.Delay = time.Hour
			id, err := q.Enqueue(ctx, task)
			if err != nil {
				return err
			}
			return errors.Join(q.Discard(ctx, id, "for now"), q.Retry(ctx, id))
		},
	} {
		if err := enqueue(queue.Task{Kind: "note", Args: n}); err != nil {
			t.Fatalf("%d: %v", n, err)
		}
		if got := unpolled(t, done, "a job"); got != n {
			t.Errorf("job %d, want %d", got, n)
		}
	}
}

// Whoever is told of nothing learns of other processes' jobs when it polls, and of those of its own at once.
func pollOnlyIsToldOfNothing(t *testing.T, d *env) {
	quiet, loud := make(chan int, 10), make(chan int, 10)
	q := d.worker(t, queue.Options{PollOnly: true}, queue.WorkerOptions{Poll: time.Minute, Queue: "quiet", Promote: -1, Rescue: -1}, quiet)
	d.worker(t, queue.Options{}, queue.WorkerOptions{Poll: 50 * time.Millisecond, Promote: -1, Rescue: -1}, loud)
	other := d.open(t, queue.Options{})
	for n := range 10 {
		enqueue(t, other, queue.Task{Kind: "note", Queue: "quiet", Args: n})
		d.enqueueTx(t, other, (*sql.Tx).Commit, queue.Task{Kind: "note", Queue: "quiet", Args: n})
		enqueue(t, other, queue.Task{Kind: "note", Args: n})
		wait(t, loud, "a job that others were told of, or polled for")
	}
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_ready"); n != 20 {
		t.Errorf("%d of 20 jobs are ready", n)
	}
	enqueue(t, q, queue.Task{Kind: "note", Queue: "quiet", Args: 10})
	for range 21 {
		unpolled(t, quiet, "jobs of its own process")
	}
}

// A commit tells, a rollback does not.
func tellsOfJobsInTransactions(t *testing.T, d *env) {
	heard := d.hear(t)
	q := d.open(t, queue.Options{})
	for _, task := range []queue.Task{{Kind: "x"}, {Kind: "x", Unique: "u"}, {Kind: "x", Group: "g"}} {
		task.Queue = "rolled back"
		d.enqueueTx(t, q, (*sql.Tx).Rollback, task)
		task.Queue = "committed"
		d.enqueueTx(t, q, (*sql.Tx).Commit, task, queue.Task{Kind: "x", Queue: "for later", Delay: time.Hour})
		if got := heard.next(t); got != fmt.Sprintf("jobs :%x", sha256.Sum256([]byte("committed"))) {
			t.Errorf("heard %q", got)
		}
	}
	tx, err := d.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.e.EnqueueTx(t.Context(), q, tx, queue.Task{Kind: "x", Queue: "committed", Unique: "u"})
	if !errors.Is(err, queue.ErrDuplicate) {
		t.Error(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	heard.nothing(t, d)
}

func tellsWhoeverIsToCancel(t *testing.T, d *env) {
	began, ended := make(chan int, 1), make(chan error, 1)
	q := d.open(t, queue.Options{})
	handle(t, q, "long", func(ctx context.Context, _ queue.Job[int]) error {
		began <- 1
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return ctx.Err()
	})
	work(t, q, queue.WorkerOptions{})
	id := enqueue(t, q, queue.Task{Kind: "long", Args: 1})[0]
	wait(t, began, "the job")
	member := d.text(t, "SELECT replace(member_id::text, '-', '') FROM dblock_queue_claim")
	other := d.open(t, queue.Options{})
	heard := d.hear(t)
	if _, err := other.Cancel(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if got := heard.next(t); !of(got, "word", member) {
		t.Errorf("heard %q, and not of %s", got, member)
	}
	if err := wait(t, ended, "the end of the context"); !errors.Is(err, queue.ErrCancelled) {
		t.Errorf("it ended for %v", err)
	}
}

func quietOnesTellNobody(t *testing.T, d *env) {
	heard := d.hear(t)
	silent, quiet := d.open(t, queue.Options{PollOnly: true}), d.open(t, queue.Options{QuietTx: true})
	for name, q := range map[string]*queue.Queue{"silent": silent, "quiet": quiet} {
		d.enqueueTx(t, q, (*sql.Tx).Commit, queue.Task{Kind: "x"})
		d.enqueueTx(t, q, (*sql.Tx).Commit, queue.Task{Kind: "x", Unique: name})
	}
	enqueue(t, silent, queue.Task{Kind: "x"})
	if err := silent.Close(t.Context()); err != nil { // which would tell what is waiting
		t.Error(err)
	}
	heard.nothing(t, d)
	enqueue(t, quiet, queue.Task{Kind: "x", Queue: "told"})
	if got := heard.next(t); !of(got, "jobs", "told") {
		t.Errorf("heard %q", got)
	}
}
