package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/queue"
)

func nop(context.Context, queue.Job[int]) error { return nil }

// record sends what jobs it gets.
func record(to chan<- int) func(context.Context, queue.Job[int]) error {
	return func(_ context.Context, job queue.Job[int]) error {
		to <- job.Args
		return nil
	}
}

func pausesAndResumes(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	done := make(chan int, 10)
	handle(t, q, "note", record(done))
	for range 2 { // twice is as good as once
		if err := q.Pause(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
	}
	if s, err := q.Stats(t.Context()); err != nil || len(s.Queues) != 1 || s.Queues[0].Queue != "default" || s.Queues[0].Paused < 0 {
		t.Errorf("%+v, %v", s, err)
	}
	work(t, q, queue.WorkerOptions{Poll: 10 * time.Millisecond})
	work(t, q, queue.WorkerOptions{Queue: "other"})
	enqueue(t, q, queue.Task{Kind: "note", Args: 1}, queue.Task{Kind: "note", Args: 2, Queue: "other"})
	if got := wait(t, done, "the other queue"); got != 2 {
		t.Errorf("job %d", got)
	}
	for range 2 {
		if err := q.Resume(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
	}
	if got := wait(t, done, "the queue that was paused"); got != 1 {
		t.Errorf("job %d", got)
	}
	if n := d.count(t, "SELECT count(*) FROM dblock_queue"); n != 0 {
		t.Errorf("%d rows stay", n)
	}
}

func countsJobs(t *testing.T, d *env) {
	told := make(chan queue.Stats, 100)
	q := d.open(t, queue.Options{Observer: queue.Observer{Stats: func(s queue.Stats) { told <- s }}})
	if s, err := q.Stats(t.Context()); err != nil || len(s.Queues) != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	began, end := make(chan int, 1), make(chan error)
	handle(t, q, "hold", func(_ context.Context, job queue.Job[int]) error {
		began <- job.Args
		return <-end
	})
	work(t, q, queue.WorkerOptions{Queue: "b", Stats: 100 * time.Millisecond})
	enqueue(t, q, queue.Task{Kind: "hold", Queue: "b", Args: 1})
	wait(t, began, "the job")
	enqueue(t, q, queue.Task{Kind: "x", Queue: "a"}, queue.Task{Kind: "x", Queue: "a", Priority: 7}, queue.Task{Kind: "x", Queue: "a", Delay: time.Hour},
		queue.Task{Kind: "x", Queue: "only later", Delay: time.Hour})
	dead := enqueue(t, q, queue.Task{Kind: "x", Queue: "c"})
	if err := q.Discard(t.Context(), dead[0], "no more"); err != nil {
		t.Fatal(err)
	}
	d.exec(t, "UPDATE dblock_queue_ready SET ready_at = ready_at - INTERVAL '2' HOUR WHERE priority = 7")
	s, err := q.Stats(t.Context())
	if err != nil || len(s.Queues) != 4 {
		t.Fatalf("%+v, %v", s, err)
	}
	for i, want := range []queue.QueueStats{
		{Queue: "a", Ready: 2, Scheduled: 1}, {Queue: "b", Claimed: 1}, {Queue: "c", Dead: 1}, {Queue: "only later", Scheduled: 1},
	} {
		got := s.Queues[i]
		if old := got.Oldest > 2*time.Hour && got.Oldest < 3*time.Hour; old != (want.Ready > 0) || got.Paused >= 0 {
			t.Errorf("%+v", got)
		}
		if got.Oldest, got.Paused = 0, 0; got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	for range len(told) { // from before
		<-told
	}
	if s := wait(t, told, "the metrics"); len(s.Queues) == 0 {
		t.Errorf("%+v", s)
	}
	end <- nil
}

// A queue with nearly as many priorities as there can be is counted in a few statements. The job that has waited longest has the
// highest of them.
func countsJobsOfManyPriorities(t *testing.T, d *env) {
	const priorities = 60_000
	id := "%016d"
	if d.e.Kind == devdb.Postgres {
		id = "%032d"
	}
	rows := make([]string, priorities)
	for i := range rows {
		rows[i] = fmt.Sprintf("('q', %d, '"+id+"')", i-priorities/2, i)
	}
	d.exec(t, "INSERT INTO dblock_queue_ready (queue, priority, job_id) VALUES "+strings.Join(rows, ", "))
	d.exec(t, fmt.Sprint("UPDATE dblock_queue_ready SET ready_at = ready_at - INTERVAL '2' HOUR WHERE queue = 'q' AND priority = ", priorities/2-1))
	q := d.open(t, queue.Options{Timeout: 3 * time.Second}) // shorter than one round trip for each priority
	s, err := q.Stats(t.Context())
	if err != nil || len(s.Queues) != 1 || s.Queues[0].Ready != queue.MaxCounted || s.Queues[0].Oldest < 2*time.Hour {
		t.Errorf("%+v, %v", s, err)
	}
}

// What only reads leaves no outcome unknown, whatever keeps it from its answer.
func readsAreNeverUnknown(t *testing.T, d *env) {
	q := d.open(t, queue.Options{Timeout: 100 * time.Millisecond})
	made := enqueue(t, q, queue.Task{Kind: "x"})
	conn, err := d.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	lock, unlock := []string{"BEGIN", "LOCK TABLE dblock_queue_job, dblock_queue_ready, dblock_queue_dead"}, "ROLLBACK"
	if d.e.Kind != devdb.Postgres {
		lock, unlock = []string{"LOCK TABLES dblock_queue_job WRITE, dblock_queue_ready WRITE, dblock_queue_dead WRITE"}, "UNLOCK TABLES"
	}
	for _, statement := range lock {
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	for name, err := range map[string]error{
		"stats": suite.Second(q.Stats(t.Context())), "show": suite.Second(q.Show(t.Context(), made[0])),
		"list": suite.Second(q.List(t.Context(), queue.Filter{})), "list of the dead": suite.Second(q.List(t.Context(), queue.Filter{State: queue.Dead})),
		"retry": suite.Second(q.RetryAll(t.Context(), "")),
	} {
		if !errors.Is(err, dblock.ErrBusy) && !errors.Is(err, dblock.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := conn.ExecContext(t.Context(), unlock); err != nil {
		t.Error(err)
	}
}

func listsAndShowsJobs(t *testing.T, d *env) {
	q := d.open(t, queue.Options{Label: "a test"})
	began, end := make(chan int, 1), make(chan error)
	handle(t, q, "hold", func(_ context.Context, job queue.Job[int]) error {
		began <- job.Args
		return <-end
	})
	work(t, q, queue.WorkerOptions{Queue: "work"})
	made := enqueue(t, q, queue.Task{Kind: "hold", Queue: "work", Args: 1})
	wait(t, began, "the job")
	made = append(made, enqueue(t, q, queue.Task{Kind: "x", Args: 2}, queue.Task{Kind: "y", Args: 3, Delay: time.Hour}, queue.Task{Kind: "z", Args: 4, Priority: -1})...)
	dead := enqueue(t, q, queue.Task{Kind: "x", Args: 5})[0]
	if err := q.Discard(t.Context(), dead, "no more"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		id     queue.ID
		queue  string
		state  queue.State
		worker string
		args   string
	}{
		{made[0], "work", queue.Claimed, "a test", "1"}, {made[1], "default", queue.Ready, "", "2"}, {made[2], "default", queue.Scheduled, "", "3"},
		{made[3], "default", queue.Ready, "", "4"}, {dead, "default", queue.Dead, "", "5"},
	} {
		r, err := q.Show(t.Context(), want.id)
		if err != nil || r.ID != want.id || r.Queue != want.queue || r.State != want.state || r.Worker != want.worker || string(r.Payload) != want.args ||
			r.At.IsZero() || r.MaxAttempts != 25 {
			t.Errorf("%+v, %v; want %+v", r, err, want)
		}
		all, err := q.List(t.Context(), queue.Filter{Queue: want.queue, State: want.state})
		if err != nil || len(all) == 0 {
			t.Errorf("%v: %+v, %v", want.state, all, err)
			continue
		}
		found := false
		for _, l := range all {
			if l.ID == want.id {
				found = true
				l.Payload = r.Payload
				if fmt.Sprint(l) != fmt.Sprint(r) {
					t.Errorf("listed as %+v, shown as %+v", l, r)
				}
			}
		}
		if !found {
			t.Errorf("%v is not in the list", want.id)
		}
	}
	if all, err := q.List(t.Context(), queue.Filter{Limit: 1}); err != nil || len(all) != 1 || all[0].ID != made[3] {
		t.Errorf("first is %+v, %v", all, err)
	}
	end <- nil
}

func cancelsWhatWaits(t *testing.T, d *env) {
	q := d.open(t, queue.Options{History: 1})
	made := enqueue(t, q, queue.Task{Kind: "x"}, queue.Task{Kind: "x", Delay: time.Hour}, queue.Task{Kind: "x"})
	if err := q.Discard(t.Context(), made[2], "no more"); err != nil {
		t.Fatal(err)
	}
	for i, state := range []queue.State{queue.Ready, queue.Scheduled, queue.Dead} {
		if was, err := q.Cancel(t.Context(), made[i]); err != nil || was != state {
			t.Errorf("it was %v, %v; want %v", was, err, state)
		}
		if _, err := q.Cancel(t.Context(), made[i]); !errors.Is(err, queue.ErrNoJob) {
			t.Errorf("once more: %v", err)
		}
	}
	d.empty(t)
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_dead"); n != 0 {
		t.Errorf("%d are dead", n)
	}
	if all, err := q.List(t.Context(), queue.Filter{State: queue.Cancelled}); err != nil || len(all) != 2 {
		t.Errorf("%+v, %v", all, err)
	}
}

// One that waits for others of its group leaves their number as it was, but for itself.
func cancelOfBlockedJobs(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	blocked := enqueue(t, q, queue.Task{Kind: "x", Delay: time.Hour})[0]
	d.exec(t, "UPDATE dblock_queue_job SET group_key = 'g'")
	d.exec(t, "INSERT INTO dblock_queue_blocked (queue, group_key, seq, job_id, priority) SELECT queue, 'g', 1, job_id, priority FROM dblock_queue_job")
	d.exec(t, "DELETE FROM dblock_queue_scheduled")
	if s, err := q.Stats(t.Context()); err != nil || len(s.Queues) != 1 || s.Queues[0].Blocked != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	if all, err := q.List(t.Context(), queue.Filter{State: queue.Blocked}); err != nil || len(all) != 1 || all[0].ID != blocked {
		t.Errorf("%+v, %v", all, err)
	}
	if was, err := q.Cancel(t.Context(), blocked); err != nil || was != queue.Blocked {
		t.Errorf("it was %v, %v", was, err)
	}
	d.empty(t)
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_blocked"); n != 0 {
		t.Errorf("%d are blocked", n)
	}
}

// What runs learns of it from its context; what has not begun never does; what ignores it is done.
func cancelsWhatRuns(t *testing.T, d *env) {
	dropped := make(chan queue.ID, 10)
	q := d.open(t, queue.Options{Observer: queue.Observer{Cancelled: func(job queue.Info, err error) {
		if !errors.Is(err, queue.ErrCancelled) {
			t.Errorf("cancelled for %v", err)
		}
		dropped <- job.ID
	}}})
	began, causes, done := make(chan int, 10), make(chan error, 10), make(chan int, 10)
	handle(t, q, "fast", nop)
	handle(t, q, "note", func(ctx context.Context, job queue.Job[int]) error {
		began <- job.Args
		<-ctx.Done()
		causes <- context.Cause(ctx)
		if job.Args == 2 {
			done <- 2
			return nil
		}
		return ctx.Err()
	})
	work(t, q, queue.WorkerOptions{Concurrency: 1, Ahead: 10})
	quick := make([]queue.Task, 300) // a worker that is fast claims ahead
	for i := range quick {
		quick[i] = queue.Task{Kind: "fast", Args: i}
	}
	if _, err := q.EnqueueMany(t.Context(), quick); err != nil {
		t.Fatal(err)
	}
	d.empty(t)
	made, err := q.EnqueueMany(t.Context(), []queue.Task{{Kind: "note", Args: 1}, {Kind: "note", Args: 2}, {Kind: "note", Args: 3}})
	if err != nil {
		t.Fatal(err)
	}
	other := d.open(t, queue.Options{})
	drops := 1
	for i, args := range []int{1, 2} {
		if n := wait(t, began, "the job"); n != args {
			t.Fatalf("job %d", n)
		}
		if i == 0 { // that which has not begun
			was, err := other.Cancel(t.Context(), made[2])
			if err != nil {
				t.Error(err)
			}
			if was == queue.Claimed {
				drops++
			}
			t.Logf("that which has not begun was %v", was)
		}
		if was, err := other.Cancel(t.Context(), made[i]); err != nil || was != queue.Claimed {
			t.Errorf("it was %v, %v", was, err)
		}
		if cause := wait(t, causes, "the end of the context"); !errors.Is(cause, queue.ErrCancelled) {
			t.Errorf("it ended for %v", cause)
		}
	}
	wait(t, done, "the job that ignores it")
	d.empty(t)
	for range drops {
		if id := wait(t, dropped, "the end"); id == made[1] {
			t.Error("that which was done was dropped")
		}
	}
	d.until(t, "SELECT count(*) FROM dblock_queue_cancel", 0)
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_dead") + int64(len(began)); n != 0 {
		t.Errorf("%d are dead, or began", n)
	}
}

func discardsRetriesAndPurges(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	made := enqueue(t, q, queue.Task{Kind: "note", Args: 1, Queue: "q"}, queue.Task{Kind: "note", Args: 2, Queue: "q", Delay: time.Hour})
	for _, id := range made {
		if err := q.Retry(t.Context(), id); !errors.Is(err, queue.ErrState) {
			t.Errorf("a job that is not dead is tried again: %v", err)
		}
		if err := q.Discard(t.Context(), id, "no\x00 more"); err != nil {
			t.Fatal(err)
		}
		if err := q.Discard(t.Context(), id, "once more"); !errors.Is(err, queue.ErrState) {
			t.Errorf("discarded twice: %v", err)
		}
	}
	d.empty(t)
	if r, err := q.Show(t.Context(), made[0]); err != nil || !strings.Contains(r.LastError, "more") || r.State != queue.Dead {
		t.Errorf("%+v, %v", r, err)
	}
	if n, err := q.Purge(t.Context(), "q", time.Hour); err != nil || n != 0 {
		t.Errorf("%d purged, %v", n, err)
	}
	if err := q.Retry(t.Context(), made[0]); err != nil {
		t.Error(err)
	}
	if n, err := q.RetryAll(t.Context(), "q"); err != nil || n != 1 {
		t.Errorf("%d tried again, %v", n, err)
	}
	done := make(chan int, 10)
	handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
		if job.Attempt != 1 || job.MaxAttempts != 25 {
			t.Errorf("%+v", job)
		}
		done <- job.Args
		return queue.Discard(errBadDay)
	})
	work(t, q, queue.WorkerOptions{Queue: "q"})
	if sum := wait(t, done, "one job") + wait(t, done, "the other"); sum != 3 {
		t.Errorf("jobs of %d", sum)
	}
	d.empty(t)
	if n, err := q.Purge(t.Context(), "q", 0); err != nil || n != 2 {
		t.Errorf("%d purged, %v", n, err)
	}
	if err := q.Retry(t.Context(), made[0]); !errors.Is(err, queue.ErrNoJob) {
		t.Errorf("a job that is gone is tried again: %v", err)
	}
}

// A job that some cancel, some discard, and workers take, ends once.
func oneOfManyEndsAJob(t *testing.T, d *env) {
	const jobs = 60
	q := d.open(t, queue.Options{})
	var did once
	handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
		did.did(job.ID)
		return nil
	})
	tasks := make([]queue.Task, jobs)
	for i := range tasks {
		tasks[i] = queue.Task{Kind: "note", Args: i, Delay: time.Duration(i%2) * time.Millisecond}
	}
	made, err := q.EnqueueMany(t.Context(), tasks)
	if err != nil {
		t.Fatal(err)
	}
	var cancelled, discarded atomic.Int64
	var all sync.WaitGroup
	for n := range 4 {
		all.Go(func() {
			for _, id := range made {
				if n%2 == 0 {
					if was, err := q.Cancel(t.Context(), id); err == nil && was != queue.Claimed {
						cancelled.Add(1)
						if was == queue.Dead {
							discarded.Add(-1)
						}
					} else if err != nil && !errors.Is(err, queue.ErrNoJob) {
						t.Errorf("cancel: %v", err)
					}
				} else if err := q.Discard(t.Context(), id, "no more"); err == nil {
					discarded.Add(1)
				} else if !errors.Is(err, queue.ErrNoJob) && !errors.Is(err, queue.ErrState) {
					t.Errorf("discard: %v", err)
				}
			}
		})
	}
	work(t, q, queue.WorkerOptions{Batch: 1, Concurrency: 1, Promote: 10 * time.Millisecond})
	all.Wait()
	d.empty(t)
	dead := d.count(t, "SELECT count(*) FROM dblock_queue_dead")
	if sum := int64(did.done()) + cancelled.Load() + dead; sum > jobs || dead != discarded.Load() {
		t.Errorf("of %d jobs %d were done, %d cancelled, %d discarded; %d are dead", jobs, did.done(), cancelled.Load(), discarded.Load(), dead)
	}
}

func refusesBadQuestions(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	long := strings.Repeat("q", queue.MaxNameBytes+1)
	for name, err := range map[string]error{
		"pause": q.Pause(t.Context(), long), "resume": q.Resume(t.Context(), "a\x00"),
		"list":  suite.Second(q.List(t.Context(), queue.Filter{Queue: long})),
		"state": suite.Second(q.List(t.Context(), queue.Filter{State: 99})), "limit": suite.Second(q.List(t.Context(), queue.Filter{Limit: 1001})),
		"purge": suite.Second(q.Purge(t.Context(), "", -1)), "purge name": suite.Second(q.Purge(t.Context(), long, 0)),
		"retry": suite.Second(q.RetryAll(t.Context(), long)), "parse": suite.Second(queue.ParseState("moving")),
		"history": second2(d.e.Open(t.Context(), d.dsn, queue.Options{History: -1})),
	} {
		if !errors.Is(err, dblock.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := q.Discard(t.Context(), queue.ID{1}, "x"); !errors.Is(err, queue.ErrNoJob) {
		t.Error(err)
	}
}

func second2[T, U any](_ T, _ U, err error) error { return err }
