package queue

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/queue"
)

// cancelAll cancels jobs that a worker has.
func cancelAll(t *testing.T, q *queue.Queue, jobs []queue.ID) {
	t.Helper()
	for _, id := range jobs {
		if was, err := q.Cancel(suite.Soon(t), id); err != nil || was != queue.Claimed {
			t.Errorf("job %v was %v, %v", id, was, err)
		}
	}
}

// cancelled fails unless all jobs have ended as cancelled.
func (d *env) cancelled(t *testing.T, jobs int) {
	t.Helper()
	d.empty(t)
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_history WHERE outcome = 2"); n != int64(jobs) {
		t.Errorf("of %d jobs %d are kept as cancelled", jobs, n)
	}
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_history WHERE outcome <> 2"); n != 0 {
		t.Errorf("%d jobs are kept as finished or given up", n)
	}
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_dead"); n != 0 {
		t.Errorf("%d jobs are dead", n)
	}
}

// observesDrops is an Observer that passes on the jobs that are dropped because Cancel was called.
func observesDrops(t *testing.T, dropped chan<- queue.Info) queue.Observer {
	return queue.Observer{Cancelled: func(job queue.Info, err error) {
		if !errors.Is(err, queue.ErrCancelled) {
			t.Errorf("cancelled for %v", err)
		}
		dropped <- job
	}}
}

// wantDropped fails unless observers hear of each of some jobs once.
func wantDropped(t *testing.T, dropped <-chan queue.Info, jobs []queue.ID) {
	t.Helper()
	left := make(map[queue.ID]bool, len(jobs))
	for _, id := range jobs {
		left[id] = true
	}
	for range jobs {
		job := wait(t, dropped, "what the observer is told")
		if !left[job.ID] || job.Queue != queue.DefaultQueue || job.Kind != "note" || job.Attempt != 1 || job.MaxAttempts == 0 || time.Since(job.EnqueuedAt) > time.Hour {
			t.Errorf("told of %+v", job)
		}
		delete(left, job.ID)
	}
	if len(dropped) != 0 {
		t.Errorf("%d more jobs are told of", len(dropped))
	}
}

// keyed are tasks of each kind of key.
func keyed(kind string) (tasks []queue.Task) {
	for n := range 3 {
		tasks = append(tasks, queue.Task{Kind: kind}, queue.Task{Kind: kind, Unique: fmt.Sprint(kind, n)}, queue.Task{Kind: kind, Group: fmt.Sprint(kind, n)})
	}
	for i := range tasks {
		tasks[i].Args = i
	}
	return tasks
}

// Jobs that end, in whichever way, before their worker has learned that they are cancelled, never begin again.
func cancelsForGood(t *testing.T, d *env) {
	dropped := make(chan queue.ID, 1000)
	q := d.open(t, queue.Options{PollOnly: true, History: 1, Observer: queue.Observer{Cancelled: func(job queue.Info, err error) {
		if !errors.Is(err, queue.ErrCancelled) {
			t.Errorf("cancelled for %v", err)
		}
		dropped <- job.ID
	}}})
	other := d.open(t, queue.Options{PollOnly: true, History: 1})
	began, release := make(chan queue.ID, 1000), make(chan struct{})
	var tasks []queue.Task
	for kind, err := range map[string]error{
		"fails": errBadDay, "snoozes": queue.Snooze(time.Millisecond), "discards": queue.Discard(errBadDay), "stays": context.Canceled,
	} {
		handle(t, q, kind, func(_ context.Context, job queue.Job[int]) error {
			began <- job.ID
			<-release
			return err
		})
		tasks = append(tasks, keyed(kind)...)
	}
	made := enqueue(t, other, tasks...)
	work(t, q, queue.WorkerOptions{Backoff: fast, Promote: 10 * time.Millisecond})
	for range made {
		wait(t, began, "a job")
	}
	cancelAll(t, other, made)
	close(release)
	d.cancelled(t, len(made))
	for range made {
		wait(t, dropped, "what the observer is told")
	}
	if len(began) != 0 {
		t.Errorf("%d jobs began again", len(began))
	}
	d.until(t, "SELECT count(*) FROM dblock_queue_cancel", 0)
}

// So it is with jobs that a worker hands back as it ends.
func cancelsWhatIsHandedBack(t *testing.T, d *env) {
	q := d.open(t, queue.Options{PollOnly: true, History: 1})
	other := d.open(t, queue.Options{PollOnly: true, History: 1})
	began := make(chan queue.ID, 1000)
	handle(t, q, "note", func(ctx context.Context, job queue.Job[int]) error {
		began <- job.ID
		<-ctx.Done()
		return ctx.Err()
	})
	made := enqueue(t, other, keyed("note")...)
	stop := work(t, q, queue.WorkerOptions{Grace: -1})
	for range made {
		wait(t, began, "a job")
	}
	cancelAll(t, other, made)
	if err := stop(); err != nil {
		t.Error(err)
	}
	d.cancelled(t, len(made))
}

// So it is with jobs whose process dies, before it has learned of it or after that.
func cancelsWhatIsRescued(t *testing.T, d *env) {
	const last = 3
	dropped := make(chan queue.Info, 1000)
	other := d.open(t, queue.Options{PollOnly: true, History: 1, Observer: observesDrops(t, dropped)})
	tasks := keyed("note")
	for i := range last {
		tasks[i].MaxAttempts = 1
	}
	made := d.killed(t, other, tasks...)
	cancelAll(t, other, made)
	if again, dead, err := other.Rescue(suite.Soon(t)); err != nil || again+dead != 0 {
		t.Errorf("rescued %d and %d, %v", again, dead, err)
	}
	d.cancelled(t, len(made))
	wantDropped(t, dropped, made)

	q := d.open(t, queue.Options{PollOnly: true})
	told, end := make(chan error, 100), make(chan struct{})
	began := make(chan queue.ID, 100)
	handle(t, q, "note", func(ctx context.Context, job queue.Job[int]) error {
		began <- job.ID
		<-ctx.Done()
		told <- context.Cause(ctx)
		<-end
		return ctx.Err()
	})
	more := enqueue(t, other, keyed("note")...)
	work(t, q, queue.WorkerOptions{Rescue: -1, Promote: -1})
	for range more {
		wait(t, began, "a job")
	}
	cancelAll(t, other, more)
	for range more {
		if err := wait(t, told, "the end of the context"); !errors.Is(err, queue.ErrCancelled) {
			t.Errorf("it ended for %v", err)
		}
	}
	d.exec(t, "DELETE FROM dblock_member")
	if again, dead, err := other.Rescue(suite.Soon(t)); err != nil || again+dead != 0 {
		t.Errorf("rescued %d and %d, %v", again, dead, err)
	}
	d.cancelled(t, len(made)+len(more))
	wantDropped(t, dropped, more)
	close(end)
}

// So it is with jobs of a claim that the worker does not know of, and gives back.
func cancelsWhatIsNotKnown(t *testing.T, d *env) {
	dropped := make(chan queue.Info, 1000)
	q := d.open(t, queue.Options{PollOnly: true, TTL: 3 * time.Second, Observer: observesDrops(t, dropped)})
	other := d.open(t, queue.Options{PollOnly: true, Observer: observesDrops(t, dropped)})
	began, end := make(chan struct{}, 1), make(chan struct{})
	handle(t, q, "first", func(context.Context, queue.Job[int]) error {
		began <- struct{}{}
		<-end
		return nil
	})
	var did once
	handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
		did.did(job.ID)
		return nil
	})
	work(t, q, queue.WorkerOptions{Concurrency: 1, Ahead: -1})
	enqueue(t, other, queue.Task{Kind: "first", Args: 0})
	wait(t, began, "the first job")
	all := enqueue(t, other, keyed("note")...)
	d.claimAll(t)
	for _, id := range all {
		if _, err := other.Cancel(suite.Soon(t), id); err != nil { // it may have been given back
			t.Error(err)
		}
	}
	close(end)
	d.empty(t)
	if n := did.done(); n != 0 {
		t.Errorf("%d cancelled jobs began", n)
	}
	wantDropped(t, dropped, all)
}

// A request and the end of an attempt meet. If the end has the claim, the request waits for it, and finds the job where it is then. If the
// request has the claim, the end waits for it.
func cancelsWhatIsEnding(t *testing.T, d *env) {
	q := d.open(t, queue.Options{PollOnly: true, History: 1, Timeout: time.Minute})
	other := d.open(t, queue.Options{PollOnly: true, History: 1, Timeout: time.Minute})
	began, end := make(chan queue.ID, 100), make(chan struct{})
	handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
		began <- job.ID
		<-end
		return errBadDay
	})
	work(t, q, queue.WorkerOptions{Promote: -1, Backoff: func(int, error) time.Duration { return time.Hour }})
	endWaits := "SELECT job_id FROM dblock_queue_job FOR UPDATE"
	if d.e.Kind != devdb.Postgres { // an end waits for no row of a job, but for a gap
		endWaits = "SELECT job_id FROM dblock_queue_scheduled FOR UPDATE"
	}
	for i, hold := range []string{
		endWaits,
		"INSERT INTO dblock_queue_cancel (member_id, job_id) SELECT m.member_id, j.job_id FROM dblock_member m CROSS JOIN dblock_queue_job j",
	} {
		id := enqueue(t, other, queue.Task{Kind: "note", Args: i})[0]
		wait(t, began, "the job")
		tx := d.openTx(t)
		if _, err := tx.ExecContext(t.Context(), hold); err != nil {
			t.Fatal(err)
		}
		asked := make(chan error, 1)
		steps := []func(){
			func() { end <- struct{}{} },
			func() {
				go func() {
					_, err := other.Cancel(suite.Soon(t), id)
					asked <- err
				}()
			},
		}
		steps[i]()
		d.untilWaiting(t, 1, func() bool { return false })
		steps[1-i]()
		d.untilWaiting(t, 2, func() bool { return len(asked) > 0 || d.count(t, "SELECT count(*) FROM dblock_queue_scheduled") > 0 })
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if err := wait(t, asked, "the answer to the request"); err != nil {
			t.Errorf("%s: %v", hold, err)
		}
		d.cancelled(t, i+1)
	}
}

// untilWaiting waits until so many statements wait for locks, or something else is.
func (d *env) untilWaiting(t *testing.T, n int64, or func() bool) {
	t.Helper()
	suite.Until(t, "statements wait for locks", func() bool {
		time.Sleep(150 * time.Millisecond) // what is read more often than every 100 ms, InnoDB does not bring up to date
		return d.count(t, suite.RowWaits(d.e.Kind)) >= n || or()
	})
}
