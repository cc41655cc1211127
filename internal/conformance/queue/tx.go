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

// HandlerTx is a transaction of HandleTx, of whatever driver.
type HandlerTx interface {
	Do(ctx context.Context, statement string) error
	Enqueue(ctx context.Context, tasks ...queue.Task) ([]queue.ID, error)
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// TxHandler is a handler whose effects are in its transaction.
type TxHandler func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error

// handleTx registers one.
func handleTx(t *testing.T, d *env, q *queue.Queue, kind string, fn TxHandler, opts ...queue.HandlerOption) {
	t.Helper()
	if err := d.e.HandleTx(q, kind, fn, opts...); err != nil {
		t.Fatal(err)
	}
}

// effectOf is the effect of a job: a row, which nothing keeps from being there twice.
func effectOf(job queue.Info) string {
	return fmt.Sprintf("INSERT INTO suite_effect (job, attempt) VALUES ('%v', %d)", job.ID, job.Attempt)
}

// effects makes the table.
func (d *env) effects(t *testing.T) {
	t.Helper()
	d.exec(t, "CREATE TABLE suite_effect (job CHAR(36) NOT NULL, attempt INT NOT NULL)")
}

// effective has each of some jobs have had its effect once, and no other any.
func (d *env) effective(t *testing.T, jobs ...queue.ID) {
	t.Helper()
	for id, last := range d.deadJobs(t) {
		t.Logf("job %v died: %s", id, last)
	}
	for _, id := range jobs {
		if n := d.count(t, fmt.Sprintf("SELECT count(*) FROM suite_effect WHERE job = '%v'", id)); n != 1 {
			t.Errorf("job %v had its effect %d times", id, n)
		}
	}
	if n := d.count(t, "SELECT count(*) FROM suite_effect"); int(n) != len(jobs) {
		t.Errorf("%d effects of %d jobs", n, len(jobs))
	}
}

// What became of a job, and whether its effects are there, is the same thing.
func effectsAndEndsAreOne(t *testing.T, d *env) {
	d.effects(t)
	recorded := make(chan int, 200)
	o := queue.Options{Observer: queue.Observer{Recorded: func(_ string, jobs int, _ time.Duration) { recorded <- jobs }}}
	q, other := d.open(t, o), d.open(t, o)
	for _, q := range []*queue.Queue{q, other} {
		handleTx(t, d, q, "effect", func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
			if err := tx.Do(ctx, effectOf(job.Info)); err != nil {
				return err
			}
			switch {
			case job.Args == 1:
				return queue.Discard(errBadDay)
			case job.Args == 2:
				return queue.Cancel(errBadDay)
			case job.Args == 3 && job.Attempt == 1:
				panic(errBadDay)
			case job.Args == 4 && time.Since(job.EnqueuedAt) < 100*time.Millisecond:
				return queue.Snooze(20 * time.Millisecond)
			case job.Args%3 == 0 && job.Attempt < 3:
				return errBadDay
			}
			return nil
		})
		work(t, q, queue.WorkerOptions{Backoff: fast, Promote: 10 * time.Millisecond, Concurrency: 4})
	}
	var tasks []queue.Task
	for n := range 100 {
		tasks = append(tasks, queue.Task{Kind: "effect", Args: n + 1})
	}
	made, err := q.EnqueueMany(suite.Soon(t), tasks)
	if err != nil {
		t.Fatal(err)
	}
	d.empty(t)
	d.effective(t, made[2:]...)
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_dead"); n != 1 {
		t.Errorf("%d are dead", n)
	}
	for n := 0; n < len(made)-1; { // but for the one that is dead
		n += wait(t, recorded, "the jobs that are recorded")
	}
}

// A job follows from another one exactly if that has ended.
func effectsOfChainsOfJobs(t *testing.T, d *env) {
	d.effects(t)
	const chains, long = 5, 10
	q := d.open(t, queue.Options{})
	var mu sync.Mutex
	var all []queue.ID
	handleTx(t, d, q, "link", func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
		if err := tx.Do(ctx, effectOf(job.Info)); err != nil {
			return err
		}
		if job.Args < long {
			if _, err := tx.Enqueue(ctx, queue.Task{Kind: "link", Args: job.Args + 1}); err != nil {
				return err
			}
		}
		if job.Attempt < 2 {
			return errBadDay
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, job.ID)
		return nil
	})
	work(t, q, queue.WorkerOptions{Backoff: fast, Promote: 10 * time.Millisecond, Poll: 10 * time.Millisecond, Concurrency: 4})
	for range chains {
		enqueue(t, q, queue.Task{Kind: "link", Args: 1})
	}
	d.empty(t)
	mu.Lock()
	defer mu.Unlock()
	if len(all) != chains*long {
		t.Errorf("%d links of %d chains", len(all), chains)
	}
	d.effective(t, all...)
}

// The end gives unique keys back and lets the next one of the group in, one that followed from it, too.
func effectsInGroups(t *testing.T, d *env) {
	d.effects(t)
	q := d.open(t, queue.Options{})
	var mu sync.Mutex
	var order []int
	var made []queue.ID
	handleTx(t, d, q, "effect", func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
		if err := tx.Do(ctx, effectOf(job.Info)); err != nil {
			return err
		}
		if job.Args == 2 {
			if _, err := tx.Enqueue(ctx, queue.Task{Kind: "effect", Args: 6, Group: "g", Unique: "6"}); err != nil {
				return err
			}
		}
		if job.Attempt == 1 && job.Args%2 == 0 {
			return errBadDay
		}
		mu.Lock()
		defer mu.Unlock()
		order, made = append(order, job.Args), append(made, job.ID)
		return nil
	})
	for n := range 5 {
		enqueue(t, q, queue.Task{Kind: "effect", Args: n + 1, Group: "g", Unique: fmt.Sprint(n + 1)})
	}
	work(t, q, queue.WorkerOptions{Backoff: fast, Promote: 10 * time.Millisecond, Poll: 10 * time.Millisecond, Concurrency: 4})
	d.empty(t)
	mu.Lock()
	got := fmt.Sprint(order)
	mu.Unlock()
	if got != "[1 2 3 4 5 6]" {
		t.Errorf("they were done as %v", got)
	}
	d.effective(t, made...)
	enqueue(t, q, queue.Task{Kind: "effect", Args: 7, Group: "g", Unique: "1"})
	d.empty(t)
}

func effectsAndHistory(t *testing.T, d *env) {
	d.effects(t)
	q := d.open(t, queue.Options{History: 1})
	handleTx(t, d, q, "effect", func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
		return tx.Do(ctx, effectOf(job.Info))
	})
	work(t, q, queue.WorkerOptions{})
	id := enqueue(t, q, queue.Task{Kind: "effect", Args: 1})[0]
	d.empty(t)
	d.effective(t, id)
	if r, err := q.Show(suite.Soon(t), id); err != nil || r.State != queue.Finished {
		t.Errorf("%+v, %v", r, err)
	}
}

// Who is around a handler has the last word.
func effectsAndMiddleware(t *testing.T, d *env) {
	d.effects(t)
	q := d.open(t, queue.Options{})
	handleTx(t, d, q, "effect", func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
		if err := tx.Do(ctx, effectOf(job.Info)); err != nil {
			return err
		}
		if job.Args == 2 {
			panic(errBadDay)
		}
		return nil
	})
	around := func(ctx context.Context, job queue.Info, next queue.Next) (err error) {
		defer func() {
			if recover() != nil { // the job is done, as it says: its effects are half done
				err = nil
			}
		}()
		if err := next(ctx); err != nil || job.Attempt > 1 {
			return err
		}
		return errBadDay
	}
	work(t, q, queue.WorkerOptions{Backoff: fast, Promote: 10 * time.Millisecond, Middleware: []queue.Middleware{around}})
	made := enqueue(t, q, queue.Task{Kind: "effect", Args: 1}, queue.Task{Kind: "effect", Args: 2})
	d.empty(t)
	d.effective(t, made[0])
	if n := d.count(t, "SELECT attempt FROM suite_effect"); n != 2 {
		t.Errorf("the effect is of attempt %d", n)
	}
}

// What returned when its time was up has no effect, whatever it says.
func effectsInTime(t *testing.T, d *env) {
	d.effects(t)
	dead := make(chan error, 1)
	q := d.open(t, queue.Options{Observer: queue.Observer{Dead: func(_ queue.Info, err error) { dead <- err }}})
	handleTx(t, d, q, "effect", func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
		err := tx.Do(ctx, effectOf(job.Info))
		<-ctx.Done()
		return err
	}, queue.Timeout(time.Second))
	work(t, q, queue.WorkerOptions{})
	enqueue(t, q, queue.Task{Kind: "effect", Args: 1, MaxAttempts: 1})
	if err := wait(t, dead, "the end"); !errors.Is(err, queue.ErrTimeout) {
		t.Errorf("it died of %v", err)
	}
	d.empty(t)
	d.effective(t)
}

// Handlers that give way to others are run again at once: not more often than it makes sense.
func effectsOfConflicts(t *testing.T, d *env) {
	d.effects(t)
	dead := make(chan error, 2)
	q := d.open(t, queue.Options{Observer: queue.Observer{Dead: func(_ queue.Info, err error) { dead <- err }}})
	d.exec(t, "CREATE TABLE suite_row (n INT PRIMARY KEY, times INT NOT NULL)")
	d.exec(t, "INSERT INTO suite_row VALUES (1, 0), (2, 0)")
	var mu sync.Mutex
	runs := make(map[queue.ID]int)
	var both sync.WaitGroup
	both.Add(2)
	handleTx(t, d, q, "effect", func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
		mu.Lock()
		runs[job.ID]++
		n := runs[job.ID]
		mu.Unlock()
		if err := tx.Do(ctx, effectOf(job.Info)); err != nil {
			return err
		}
		if job.Args > 2 {
			return tx.Do(ctx, d.conflict())
		}
		for i, row := range []int{job.Args, 3 - job.Args} {
			if i == 1 && n == 1 {
				both.Done()
				both.Wait()
			}
			if err := tx.Do(ctx, fmt.Sprintf("UPDATE suite_row SET times = times + 1 WHERE n = %d", row)); err != nil {
				return err
			}
		}
		return nil
	})
	work(t, q, queue.WorkerOptions{Concurrency: 3})
	var tasks []queue.Task
	for n := range 3 {
		tasks = append(tasks, queue.Task{Kind: "effect", Args: n + 1, MaxAttempts: 1})
	}
	made, err := q.EnqueueMany(suite.Soon(t), tasks)
	if err != nil {
		t.Fatal(err)
	}
	if err := wait(t, dead, "the one that never gets through"); !errors.Is(err, dblock.ErrConflict) {
		t.Errorf("it died of %v", err)
	}
	d.empty(t)
	d.effective(t, made[:2]...)
	if n := d.count(t, "SELECT sum(times) FROM suite_row"); n != 4 {
		t.Errorf("%d updates", n)
	}
	// The one that gave way may take its first row again before the other one gets it: then they deadlock once more.
	if n := runs[made[0]] + runs[made[1]]; n < 3 || max(runs[made[0]], runs[made[1]]) > 5 || runs[made[2]] != 5 {
		t.Errorf("%d runs of two that deadlock, %d of one that can't be", n, runs[made[2]])
	}
}

// conflict is a statement that gives way to others, whoever they are.
func (d *env) conflict() string {
	if d.e.Kind == devdb.Postgres {
		return "DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '40001'; END $$"
	}
	return "SIGNAL SQLSTATE '40001'"
}

// A worker that is to end lets handlers commit, and rolls back those that are out of time, at no cost of an attempt.
func effectsAtTheEndOfWork(t *testing.T, d *env) {
	d.effects(t)
	for i, grace := range []time.Duration{time.Minute, -1} {
		q := d.open(t, queue.Options{})
		began, end := make(chan int, 1), make(chan struct{})
		handleTx(t, d, q, "effect", func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
			if err := tx.Do(ctx, effectOf(job.Info)); err != nil {
				return err
			}
			began <- job.Attempt
			select {
			case <-end:
			case <-ctx.Done():
			}
			return nil
		})
		stop := work(t, q, queue.WorkerOptions{Grace: grace})
		enqueue(t, q, queue.Task{Kind: "effect", Args: 1})
		if n := wait(t, began, "the job"); n != 1 {
			t.Errorf("attempt %d", n)
		}
		stopped := make(chan error, 1)
		go func() { stopped <- stop() }()
		if grace > 0 {
			close(end)
		}
		if err := wait(t, stopped, "the end of work"); err != nil {
			t.Error(err)
		}
		if n := d.count(t, "SELECT count(*) FROM dblock_queue_job"); int(n) != i {
			t.Errorf("grace %v: %d jobs are left", grace, n)
		}
		if n := d.count(t, "SELECT count(*) FROM suite_effect"); n != 1 {
			t.Errorf("grace %v: %d effects", grace, n)
		}
	}
	if n := d.count(t, "SELECT attempt FROM dblock_queue_job"); n != 0 {
		t.Errorf("%d attempts", n)
	}
}

func refusesBadTxHandlers(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	fine := func(context.Context, HandlerTx, queue.Job[int]) error { return nil }
	handleTx(t, d, q, "taken", fine)
	for what, err := range map[string]error{
		"no handler":     d.e.HandleTx(q, "k", nil),
		"no kind":        d.e.HandleTx(q, "", fine),
		"a kind twice":   d.e.HandleTx(q, "taken", fine),
		"another engine": queue.HandleIn(q, "k", func(context.Context, struct{}, queue.Job[int]) error { return nil }),
	} {
		if !errors.Is(err, dblock.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
