package queue

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/queue"
)

// manyDead is more than one page of a list has.
const manyDead = 1200

// die enqueues jobs that their handler gives up, and waits until all are dead. They die for as long as a worker lives.
func (d *env) die(t *testing.T, q *queue.Queue, tasks []queue.Task) (stop func() error) {
	t.Helper()
	before := d.count(t, "SELECT count(*) FROM dblock_queue_dead")
	if _, err := q.EnqueueMany(suite.Soon(t), tasks); err != nil {
		t.Fatal(err)
	}
	stop = work(t, q, queue.WorkerOptions{})
	d.until(t, "SELECT count(*) FROM dblock_queue_dead", before+int64(len(tasks)))
	return stop
}

func doomed(context.Context, queue.Job[int]) error { return queue.Discard(errBadDay) }

// Jobs that die again at once are retried once in one call, however many they are.
func retryAllEnds(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	handle(t, q, "note", doomed)
	tasks := make([]queue.Task, manyDead)
	for i := range tasks {
		tasks[i] = queue.Task{Kind: "note", Args: i}
	}
	d.die(t, q, tasks)
	if n, err := q.RetryAll(suite.Soon(t), ""); err != nil || n != manyDead {
		t.Errorf("%d of %d were retried: %v", n, manyDead, err)
	}
}

// Jobs whose unique keys others have keep none of those from being retried that died before them. Of several with the same key one is
// retried, that which died last.
func retryAllPassesTakenKeys(t *testing.T, d *env) {
	const free = 5
	q := d.open(t, queue.Options{})
	handle(t, q, "note", doomed)
	frees := make([]queue.Task, free)
	for i := range frees {
		frees[i] = queue.Task{Kind: "note", Args: i, Unique: fmt.Sprint("free ", i%2), Group: fmt.Sprint(i % 3)}
	}
	frees[0].Unique, frees[0].Group, frees[1].Unique = "", "", ""
	for _, task := range frees { // one after the other: their keys are free again
		if err := d.die(t, q, []queue.Task{task})(); err != nil {
			t.Fatal(err)
		}
	}
	taken := make([]queue.Task, manyDead)
	for i := range taken {
		taken[i] = queue.Task{Kind: "note", Args: i, Unique: fmt.Sprint(i)}
	}
	if err := d.die(t, q, taken)(); err != nil {
		t.Fatal(err)
	}
	if _, err := q.EnqueueMany(suite.Soon(t), taken); err != nil {
		t.Fatal(err)
	}
	if n, err := q.RetryAll(suite.Soon(t), ""); err != nil || n != free-1 {
		t.Errorf("%d of %d were retried: %v", n, free-1, err)
	}
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_dead"); n != manyDead+1 {
		t.Errorf("%d are dead, want %d", n, manyDead+1)
	}
	next := d.open(t, queue.Options{})
	handle(t, next, "note", nop)
	work(t, next, queue.WorkerOptions{})
	d.empty(t)
}

// A transaction that is open, and has enqueued with the unique key of a dead job, keeps no other dead job from being retried. Once it
// has committed the key is another job's.
func retryBesideAnOpenTransaction(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	handle(t, q, "note", doomed)
	if err := d.die(t, q, []queue.Task{{Kind: "note", Args: 1}, {Kind: "note", Args: 2, Unique: "key"}, {Kind: "note", Args: 3}})(); err != nil {
		t.Fatal(err)
	}
	dead, err := q.List(t.Context(), queue.Filter{State: queue.Dead})
	if err != nil || len(dead) != 3 {
		t.Fatalf("%+v, %v", dead, err)
	}
	var keyed queue.ID
	for _, r := range dead {
		if s, err := q.Show(t.Context(), r.ID); err != nil {
			t.Fatal(err)
		} else if s.UniqueKey != "" {
			keyed = r.ID
		}
	}
	tx, err := d.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := d.e.EnqueueTx(t.Context(), q, tx, queue.Task{Kind: "note", Args: 4, Unique: "key"}); err != nil {
		t.Fatal(err)
	}
	if n, err := q.RetryAll(suite.Soon(t), ""); err != nil || n != 2 {
		t.Errorf("%d were retried beside the transaction: %v", n, err)
	}
	answer := make(chan error, 1)
	go func() { answer <- q.Retry(suite.Soon(t), keyed) }()
	suite.Until(t, "the retry waits for the transaction, or does not", func() bool {
		time.Sleep(150 * time.Millisecond) // what is read more often than every 100 ms, InnoDB does not bring up to date
		return len(answer) > 0 || d.count(t, suite.RowWaits(d.e.Kind)) > 0
	})
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	got := wait(t, answer, "the retry")
	if !errors.Is(got, dblock.ErrBusy) && !errors.Is(got, dblock.ErrConflict) {
		t.Errorf("the key was another's: %v", got)
	}
	if err := q.Retry(t.Context(), keyed); !errors.Is(err, dblock.ErrConflict) {
		t.Errorf("the key is another's: %v", err)
	}
}
