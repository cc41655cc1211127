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
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/queue"
)

// Handlers that end their transaction, or go on where it has ended: the attempt fails, and says why. What they have committed on MySQL and
// MariaDB is there, and the job has not ended with it.
func effectsOfHandlersThatEndTheirTx(t *testing.T, d *env) {
	d.effects(t)
	postgres := d.e.Kind == devdb.Postgres
	dead := make(chan error, 1)
	q := d.open(t, queue.Options{Observer: queue.Observer{Dead: func(_ queue.Info, err error) { dead <- err }}})
	type misdeed struct {
		what string
		do   func(ctx context.Context, tx HandlerTx) error // after the effect
		left int64                                         // effects that are there
	}
	text := func(s string) func(ctx context.Context, tx HandlerTx) error {
		return func(ctx context.Context, tx HandlerTx) error { return tx.Do(ctx, s) }
	}
	committed := int64(1)
	if postgres { // where it refuses
		committed = 0
	}
	misdeeds := []misdeed{
		{"Commit", func(ctx context.Context, tx HandlerTx) error { return refusedIf(postgres, tx.Commit(ctx)) }, committed},
		{"Rollback", func(ctx context.Context, tx HandlerTx) error { return refusedIf(postgres, tx.Rollback(ctx)) }, 0},
		{"COMMIT", text("COMMIT"), 1},
		{"ROLLBACK", text("ROLLBACK"), 0},
	}
	if postgres {
		misdeeds = append(misdeeds, misdeed{"an error that is not returned", func(ctx context.Context, tx HandlerTx) error {
			_ = tx.Do(ctx, "SELECT nothing")
			return nil
		}, 0})
	} else {
		misdeeds = append(misdeeds, misdeed{"CREATE TABLE", text("CREATE TABLE suite_more (n INT)"), 1})
	}
	handleTx(t, d, q, "effect", func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
		if err := tx.Do(ctx, effectOf(job.Info)); err != nil {
			return err
		}
		return misdeeds[job.Args].do(ctx, tx)
	})
	work(t, q, queue.WorkerOptions{})
	for n, m := range misdeeds {
		before := d.count(t, countEffects)
		enqueue(t, q, queue.Task{Kind: "effect", Args: n, MaxAttempts: 1})
		if err := wait(t, dead, "the end"); !errors.Is(err, dblock.ErrTxEnded) {
			t.Errorf("%s: it died of %v", m.what, err)
		}
		if left := d.count(t, countEffects) - before; left != m.left {
			t.Errorf("%s: %d effects", m.what, left)
		}
	}
	d.empty(t)
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_dead"); int(n) != len(misdeeds) {
		t.Errorf("%d are dead", n)
	}
}

// A handler that goes on after a deadlock as if nothing were: what it had written is rolled back, and its job does not end without it.
func effectsOfASwallowedDeadlock(t *testing.T, d *env) {
	d.effects(t)
	dead := make(chan error, 2)
	q := d.open(t, queue.Options{Observer: queue.Observer{Dead: func(_ queue.Info, err error) { dead <- err }}})
	d.exec(t, "CREATE TABLE suite_row (n INT PRIMARY KEY, times INT NOT NULL)")
	d.exec(t, "INSERT INTO suite_row VALUES (1, 0), (2, 0)")
	var both sync.WaitGroup
	both.Add(2)
	handleTx(t, d, q, "effect", func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
		if err := tx.Do(ctx, effectOf(job.Info)); err != nil {
			return err
		}
		if err := tx.Do(ctx, fmt.Sprintf("UPDATE suite_row SET times = times + 1 WHERE n = %d", job.Args)); err != nil {
			return err
		}
		both.Done()
		both.Wait()
		_ = tx.Do(ctx, fmt.Sprintf("UPDATE suite_row SET times = times + 1 WHERE n = %d", 3-job.Args))
		return nil
	})
	made, err := q.EnqueueMany(suite.Soon(t), []queue.Task{{Kind: "effect", Args: 1, MaxAttempts: 1}, {Kind: "effect", Args: 2, MaxAttempts: 1}})
	if err != nil {
		t.Fatal(err)
	}
	work(t, q, queue.WorkerOptions{})
	if err := wait(t, dead, "the victim of the deadlock"); !errors.Is(err, dblock.ErrTxEnded) {
		t.Errorf("it died of %v", err)
	}
	d.empty(t)
	if n := d.count(t, countEffects); n != 1 {
		t.Errorf("%d effects of %d jobs, of which one is dead", n, len(made))
	}
	if n := d.count(t, "SELECT sum(times) FROM suite_row"); n != 2 {
		t.Errorf("%d updates", n)
	}
}

// refusedIf drops the error of what was refused, as a bad handler does.
func refusedIf(is bool, err error) error {
	if is != errors.Is(err, dblock.ErrInvalid) {
		return fmt.Errorf("it says %w", err)
	}
	return nil
}

// A transaction that a handler keeps is of no use when it has returned.
func keptTransactionsAreOfNoUse(t *testing.T, d *env) {
	d.effects(t)
	q := d.open(t, queue.Options{})
	var kept HandlerTx
	handleTx(t, d, q, "effect", func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
		kept = tx
		return tx.Do(ctx, effectOf(job.Info))
	})
	stop := work(t, q, queue.WorkerOptions{})
	id := enqueue(t, q, queue.Task{Kind: "effect", Args: 1})[0]
	d.empty(t)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if err := kept.Do(t.Context(), effectOf(queue.Info{ID: id})); err == nil {
		t.Error("a statement was taken")
	}
	if _, err := kept.Enqueue(t.Context(), queue.Task{Kind: "effect", Args: 1}); err == nil {
		t.Error("a job was taken")
	}
	if kept.Commit(t.Context()) == nil || kept.Rollback(t.Context()) == nil {
		t.Error("its end was taken")
	}
	d.effective(t, id)
	d.empty(t)
}

// A job that people want to be dropped is, and has no effect, whatever its handler says then.
func effectsOfTheCancelled(t *testing.T, d *env) {
	d.effects(t)
	dropped, began := make(chan queue.ID, 1), make(chan queue.ID, 1)
	q := d.open(t, queue.Options{Observer: queue.Observer{Cancelled: func(job queue.Info, _ error) { dropped <- job.ID }}})
	handleTx(t, d, q, "effect", func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
		if err := tx.Do(ctx, effectOf(job.Info)); err != nil {
			return err
		}
		began <- job.ID
		<-ctx.Done()
		return nil
	})
	work(t, q, queue.WorkerOptions{})
	enqueue(t, q, queue.Task{Kind: "effect", Args: 1})
	id := wait(t, began, "the job")
	if was, err := q.Cancel(suite.Soon(t), id); err != nil || was != queue.Claimed {
		t.Errorf("it was %v, %v", was, err)
	}
	if got := wait(t, dropped, "its end"); got != id {
		t.Errorf("%v was dropped", got)
	}
	d.empty(t)
	d.effective(t)
}

// Where all connections are taken a job is not begun, and that is no attempt.
func effectsWithoutConnections(t *testing.T, d *env) {
	d.effects(t)
	const jobs = 40 // more than the pool has connections
	var once sync.Once
	waiting, open := make(chan struct{}), make(chan struct{})
	q := d.open(t, queue.Options{TTL: time.Hour, Observer: queue.Observer{Trouble: func(doing string, _ error) {
		if doing == "beginning a transaction for a job" {
			once.Do(func() { close(waiting) })
		}
	}}})
	effect := func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
		if job.Attempt != 1 {
			t.Errorf("attempt %d", job.Attempt)
		}
		return tx.Do(ctx, effectOf(job.Info))
	}
	handleTx(t, d, q, "patient", func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
		<-open
		return effect(ctx, tx, job)
	}, queue.Timeout(-1))
	handleTx(t, d, q, "hasty", effect, queue.Timeout(time.Second))
	var tasks []queue.Task
	for range jobs {
		tasks = append(tasks, queue.Task{Kind: "patient", Args: 1})
	}
	for range 10 {
		tasks = append(tasks, queue.Task{Kind: "hasty", Args: 1, Priority: 1})
	}
	made, err := q.EnqueueMany(suite.Soon(t), tasks)
	if err != nil {
		t.Fatal(err)
	}
	work(t, q, queue.WorkerOptions{Concurrency: len(tasks), Promote: 10 * time.Millisecond})
	wait(t, waiting, "a job that gets no connection")
	close(open)
	d.empty(t)
	d.effective(t, made...)
}
