package queue

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/answers"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/queue"
)

// RunAnswers replaces the server's answers while jobs of each sort are enqueued, done and looked at.
func (e Queue) RunAnswers(t *testing.T) {
	answers.Run(t, e.Kind, []answers.User{{Name: "worker", Use: e.use}})
}

func (e Queue) use(ctx context.Context, x *answers.Trial) error {
	o := queue.Options{TTL: answers.TTL, Timeout: 500 * time.Millisecond, History: 1}
	q, closePool, err := e.OpenOn(ctx, x.DSN, &faultconn.Dialer{}, o)
	if err != nil {
		x.Told(err)
		x.Heal()
		err := x.Again(ctx, "opening", func(ctx context.Context) (err error) {
			q, closePool, err = e.OpenOn(ctx, x.DSN, &faultconn.Dialer{}, o)
			return err
		})
		if err != nil {
			return err
		}
	}
	defer closePool()
	var done, last atomic.Int64
	err = queue.Handle(q, "job", func(_ context.Context, job queue.Job[int]) error {
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
			Backoff: func(int, error) time.Duration { return time.Millisecond }, Concurrency: 4,
		})
	}()
	var late []queue.ID
	for range x.Crowd - 1 {
		late = append(late, e.enqueueAll(ctx, x, q))
	}
	for began := time.Now(); done.Load() < 8 && time.Since(began) < 300*time.Millisecond; {
		answers.Pause(ctx, time.Millisecond)
	}
	x.Heal()
	n := 100
	err = nil
	if !x.Lied { // a worker that gets a job twice waits for its end twice
		err = x.Again(ctx, "a job", func(ctx context.Context) error {
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
	}
	for _, id := range late {
		if x.Lied {
			break
		}
		err = errors.Join(err, x.Again(ctx, "cancelling", func(ctx context.Context) error {
			_, err := q.Cancel(ctx, id)
			if errors.Is(err, queue.ErrNoJob) {
				return nil
			}
			return err
		}))
	}
	if !x.Lied {
		for _, table := range []string{"job", "ready", "scheduled"} {
			err = errors.Join(err, x.Free(ctx, fmt.Sprintf("SELECT count(*) FROM dblock_queue_%s WHERE queue = '%s'", table, x.Key)))
		}
	}
	stop()
	x.Told(<-worked)
	closing, cancel := context.WithTimeout(ctx, answers.Patience)
	defer cancel()
	x.Told(q.Close(closing))
	return err
}

// enqueueAll enqueues jobs of each sort and asks after them. It returns one that is not due for an hour.
func (e Queue) enqueueAll(ctx context.Context, x *answers.Trial, q *queue.Queue) (late queue.ID) {
	id, err := q.Enqueue(ctx, queue.Task{Kind: "job", Args: 1, Queue: x.Key})
	x.Told(err)
	_, err = q.EnqueueMany(ctx, []queue.Task{
		{Kind: "job", Args: 2, Queue: x.Key}, {Kind: "job", Args: 3, Queue: x.Key, Delay: 10 * time.Millisecond},
		{Kind: "job", Args: 4, Queue: x.Key, Unique: "one"}, {Kind: "job", Args: 5, Queue: x.Key, Group: "g", AtMost: 1},
		{Kind: "job", Args: 6, Queue: x.Key, Group: "g", AtMost: 1},
	})
	x.Told(err)
	_, err = q.Enqueue(ctx, queue.Task{Kind: "job", Args: 7, Queue: x.Key, Unique: "one"})
	x.Told(err)
	_, err = q.Show(ctx, id)
	x.Told(err)
	_, err = q.List(ctx, queue.Filter{Queue: x.Key})
	x.Told(err)
	_, err = q.Stats(ctx)
	x.Told(err)
	late, err = q.Enqueue(ctx, queue.Task{Kind: "job", Args: 8, Queue: x.Key, Delay: time.Hour})
	x.Told(err)
	_, err = q.Cancel(ctx, late)
	x.Told(err)
	return late
}
