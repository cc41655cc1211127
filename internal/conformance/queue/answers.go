package queue

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/answers"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/queue"
)

// RunAnswers replaces the server's answers while jobs of each sort are enqueued, done and looked
// at.
func (e Queue) RunAnswers(t *testing.T) {
	answers.Run(t, e.Kind, []answers.User{{Name: "worker", Use: e.use}})
}

func (e Queue) use(ctx context.Context, x *answers.Trial) error {
	var q *queue.Queue
	var closePool func()
	open := func(ctx context.Context) (err error) {
		o := queue.Options{TTL: answers.TTL, Timeout: 500 * time.Millisecond, History: 1}
		q, closePool, err = e.OpenOn(ctx, x.DSN, &faultconn.Dialer{}, o)
		return err
	}
	if err := x.Open(ctx, open); err != nil {
		return err
	}
	defer closePool()
	var done, last atomic.Int64
	err := queue.Handle(q, "job", func(_ context.Context, job queue.Job[int]) error {
		done.Add(1)
		last.Store(max(last.Load(), int64(job.Args)))
		if job.Args == 2 && job.Attempt == 1 {
			return errBadDay
		}
		return nil
	})
	if err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	worked := make(chan error, 1)
	go func() {
		worked <- q.Work(working, queue.WorkerOptions{
			Queue: x.Key, Poll: 20 * time.Millisecond, Promote: 10 * time.Millisecond, Rescue: 100 * time.Millisecond,
			Backoff: fast, Concurrency: 4,
		})
	}()
	var late []queue.ID
	for range x.Crowd - 1 {
		late = append(late, enqueueAll(ctx, x, q))
	}
	for began := time.Now(); done.Load() < 8 && time.Since(began) < 300*time.Millisecond; {
		answers.Pause(ctx, time.Millisecond)
	}
	x.Heal()
	if !x.Lied { // a worker that gets a job twice waits for its end twice
		err = goesOn(ctx, x, q, &last, late)
	}
	stop()
	x.Returned(<-worked)
	x.Close(ctx, q.Close)
	return err
}

// goesOn fails unless a new job is done, the late ones can be cancelled, and no job is left.
func goesOn(ctx context.Context, x *answers.Trial, q *queue.Queue, last *atomic.Int64, late []queue.ID) error {
	n := 100
	err := x.Again(ctx, "a job", func(ctx context.Context) error {
		n++
		if _, err := q.Enqueue(ctx, queue.Task{Kind: "job", Args: n, Queue: x.Key}); err != nil {
			return err
		}
		for began := time.Now(); time.Since(began) < answers.Patience/2; answers.Pause(ctx, 5*time.Millisecond) {
			if last.Load() == int64(n) {
				return nil
			}
		}
		return errors.New("it is not done")
	})
	for _, id := range late {
		err = errors.Join(err, x.Again(ctx, "cancelling", func(ctx context.Context) error {
			if _, err := q.Cancel(ctx, id); !errors.Is(err, queue.ErrNoJob) {
				return err
			}
			return nil
		}))
	}
	for _, table := range []string{"job", "ready", "scheduled"} {
		left := fmt.Sprintf("SELECT count(*) FROM dblock_queue_%s WHERE queue = '%s'", table, x.Key)
		err = errors.Join(err, x.Free(ctx, left))
	}
	return err
}

// enqueueAll enqueues jobs of each sort and asks after them. It returns one that is not due for an
// hour.
func enqueueAll(ctx context.Context, x *answers.Trial, q *queue.Queue) (late queue.ID) {
	job := func(n int) queue.Task { return queue.Task{Kind: "job", Args: n, Queue: x.Key} }
	tasks := []queue.Task{job(2), job(3), job(4), job(5), job(6)}
	tasks[1].Delay, tasks[2].Unique = 10*time.Millisecond, "one"
	tasks[3].Group, tasks[3].GroupLimit, tasks[4].Group, tasks[4].GroupLimit = "g", 1, "g", 1
	id, err := q.Enqueue(ctx, job(1))
	x.Returned(err)
	x.Returned(suite.Second(q.EnqueueMany(ctx, tasks)))
	same := job(7)
	same.Unique = "one"
	x.Returned(suite.Second(q.Enqueue(ctx, same)))
	x.Returned(suite.Second(q.Show(ctx, id)))
	x.Returned(suite.Second(q.List(ctx, queue.Filter{Queue: x.Key})))
	x.Returned(suite.Second(q.Stats(ctx)))
	delayed := job(8)
	delayed.Delay = time.Hour
	late, err = q.Enqueue(ctx, delayed)
	x.Returned(err)
	x.Returned(suite.Second(q.Cancel(ctx, late)))
	return late
}
