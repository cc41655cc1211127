package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/queue"
)

// duplicateOf fails unless err says that job has the key of the one task that was enqueued.
func duplicateOf(t *testing.T, id queue.ID, err error, job queue.ID, key string) {
	t.Helper()
	var dup *queue.DuplicateError
	if !errors.As(err, &dup) || !errors.Is(err, queue.ErrDuplicate) || id != job ||
		len(dup.Duplicates) != 1 || dup.Duplicates[0] != (queue.Duplicate{Task: 0, Key: key, Job: job}) {
		t.Errorf("%v with %v, want that %v has %q", err, id, job, key)
	}
}

func aUniqueKeyHasOneJob(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	a := enqueue(t, q, queue.Task{Kind: "note", Args: 0, Unique: "a"})[0]
	id, err := q.Enqueue(t.Context(), queue.Task{Kind: "other", Args: 1, Unique: "a"})
	duplicateOf(t, id, err, a, "a")
	enqueue(t, q, queue.Task{Kind: "note", Args: 0, Unique: "a", Queue: "other"}, queue.Task{Kind: "note", Args: 0, Unique: "A"})
	made, err := q.EnqueueMany(t.Context(), []queue.Task{
		{Kind: "note", Args: 2}, {Kind: "note", Args: 3, Unique: "b"}, {Kind: "note", Args: 4, Unique: "a"}, {Kind: "note", Args: 5, Unique: "b", Group: "g"},
		{Kind: "note", Args: 6, Unique: "a"},
	})
	var dup *queue.DuplicateError
	if !errors.As(err, &dup) || len(dup.Duplicates) != 3 || made[2] != a || made[4] != a || made[3] != made[1] ||
		dup.Duplicates[1] != (queue.Duplicate{Task: 3, Key: "b", Job: made[1]}) {
		t.Errorf("%v, %v", made, err)
	}
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_job"); n != 5 {
		t.Errorf("%d jobs", n)
	}
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_key"); n != 0 {
		t.Errorf("%d groups", n)
	}
}

// What ends a job frees its key; an attempt that fails, and a time to wait, do not.
func aUniqueKeyIsFreeOnceItsJobEnds(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	says := make(chan error)
	handle(t, q, "note", func(context.Context, queue.Job[string]) error { return <-says })
	work(t, q, queue.WorkerOptions{Backoff: fast})
	for what, ends := range map[string][]error{
		"finished": {nil}, "retried": {errBadDay, errBadDay, nil}, "discarded": {queue.Discard(errBadDay)}, "cancelled": {queue.Cancel(errBadDay)},
		"snoozed": {queue.Snooze(1), nil}, "given up": {errBadDay, errBadDay, errBadDay},
	} {
		task := queue.Task{Kind: "note", Args: what, Unique: "key", MaxAttempts: 3, Delay: 1}
		job := enqueue(t, q, task)[0]
		for _, end := range ends {
			id, err := q.Enqueue(t.Context(), task)
			duplicateOf(t, id, err, job, "key")
			select {
			case says <- end:
			case <-suite.Soon(t).Done():
				t.Fatalf("%s: the job is not run", what)
			}
		}
		d.empty(t)
	}
}

func uniqueKeysInTransactions(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	task := queue.Task{Kind: "note", Args: 1, Unique: "key", Group: "g"}
	for _, commit := range []bool{false, true} {
		tx, err := d.db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		made, err := d.e.EnqueueTx(t.Context(), q, tx, task)
		if err != nil {
			t.Fatal(err)
		}
		again, err := d.e.EnqueueTx(t.Context(), q, tx, task)
		if len(again) != 1 {
			t.Fatal(err)
		}
		duplicateOf(t, again[0], err, made[0], "key")
		type outcome struct {
			id  queue.ID
			err error
		}
		other := make(chan outcome, 1)
		go func() { // waits for the transaction
			id, err := q.Enqueue(suite.Soon(t), task)
			other <- outcome{id, err}
		}()
		if !commit {
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			if got := wait(t, other, "the other one"); got.err != nil {
				t.Error(got.err)
			}
			d.exec(t, "DELETE FROM dblock_queue_unique")
			continue
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		got := wait(t, other, "the other one")
		duplicateOf(t, got.id, got.err, made[0], "key")
	}
}

// twoAlive is how many unique keys two jobs have at the same time.
const twoAlive = "SELECT count(*) FROM (SELECT queue, unique_key FROM dblock_queue_job WHERE unique_key IS NOT NULL GROUP BY queue, unique_key HAVING count(*) > 1) x"

// Sixteen producers who want the same few keys, and eight workers: never are there two jobs of one key, what was enqueued is done once,
// and who is refused is told of a job that was.
func uniqueJobsAreExact(t *testing.T, d *env) {
	const producers, each, keys = 16, 15, 5
	var did once
	queues := d.crowd(t, 4, func(q *queue.Queue) {
		handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
			if job.Attempt == 1 && job.ID[15]%5 == 0 {
				return errBadDay
			}
			did.did(job.ID)
			return nil
		})
	})
	var mu sync.Mutex
	var made, named []queue.ID
	var producing sync.WaitGroup
	for p := range producers {
		producing.Go(func() {
			for n := range each {
				tasks := []queue.Task{{Kind: "note", Args: n, Unique: fmt.Sprint((p + n) % keys)}, {Kind: "note", Args: n, Unique: fmt.Sprint((p * n) % keys)}}
				ids, err := queues[p%len(queues)].EnqueueMany(suite.Soon(t), tasks)
				var dup *queue.DuplicateError
				if err != nil && !errors.As(err, &dup) {
					t.Error(err)
					return
				}
				taken := make(map[int]bool)
				mu.Lock()
				if dup != nil {
					for _, x := range dup.Duplicates {
						taken[x.Task] = true
						named = append(named, x.Job)
					}
				}
				for i, id := range ids {
					if !taken[i] {
						made = append(made, id)
					}
				}
				mu.Unlock()
				if n := d.count(t, twoAlive); n != 0 {
					t.Errorf("%d keys have two jobs", n)
				}
			}
		})
	}
	producing.Wait()
	d.empty(t)
	if err := did.check(made, true); err != nil {
		t.Error(err)
	}
	for _, id := range named {
		if did.times[id] != 1 {
			t.Errorf("job %v, which is said to have a key, was done %d times", id, did.times[id])
		}
	}
	if len(named) == 0 || len(made) <= keys {
		t.Errorf("%d enqueued and %d refused: the test shows nothing", len(made), len(named))
	}
}

func controlWithoutItsRowAKeyHasTwo(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	enqueue(t, q, queue.Task{Kind: "note", Args: 1, Unique: "key"})
	d.exec(t, "DELETE FROM dblock_queue_unique")
	enqueue(t, q, queue.Task{Kind: "note", Args: 1, Unique: "key"})
	if n := d.count(t, twoAlive); n != 1 {
		t.Errorf("%d keys have two jobs: the search finds nothing", n)
	}
}
