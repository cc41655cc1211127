package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/queue"
)

// RunAnswers replaces the server's answers while jobs of each sort are enqueued, done and looked at.
func (e Queue) RunAnswers(t *testing.T) {
	runAnswers(t, e.Kind, []answersUser{{"worker", e.use}})
}

func (e Queue) use(ctx context.Context, x *answersTrial) error {
	o := queue.Options{TTL: answersTTL, Timeout: 500 * time.Millisecond, History: 1}
	q, closePool, err := e.OpenOn(ctx, x.dsn, &faultconn.Dialer{}, o)
	if err != nil {
		x.told(err)
		x.heal()
		err := x.again(ctx, "opening", func(ctx context.Context) (err error) {
			q, closePool, err = e.OpenOn(ctx, x.dsn, &faultconn.Dialer{}, o)
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
			Queue: x.key, Poll: 20 * time.Millisecond, Promote: 10 * time.Millisecond, Rescue: 100 * time.Millisecond,
			Backoff: func(int, error) time.Duration { return time.Millisecond }, Concurrency: 4,
		})
	}()
	var late []queue.ID
	for range x.crowd - 1 {
		late = append(late, e.enqueueAll(ctx, x, q))
	}
	for began := time.Now(); done.Load() < 8 && time.Since(began) < 300*time.Millisecond; {
		pause(ctx, time.Millisecond)
	}
	x.heal()
	n := 100
	err = nil
	if !x.lied { // a worker that gets a job twice waits for its end twice
		err = x.again(ctx, "a job", func(ctx context.Context) error {
			n++
			if _, err := q.Enqueue(ctx, queue.Task{Kind: "job", Args: n, Queue: x.key}); err != nil {
				return err
			}
			for began := time.Now(); time.Since(began) < answersPatience/2; pause(ctx, 5*time.Millisecond) {
				if last.Load() == int64(n) {
					return nil
				}
			}
			return errors.New("it is not done")
		})
	}
	for _, id := range late {
		if x.lied {
			break
		}
		err = errors.Join(err, x.again(ctx, "cancelling", func(ctx context.Context) error {
			_, err := q.Cancel(ctx, id)
			if errors.Is(err, queue.ErrNoJob) {
				return nil
			}
			return err
		}))
	}
	if !x.lied {
		for _, table := range []string{"job", "ready", "scheduled"} {
			err = errors.Join(err, x.free(ctx, fmt.Sprintf("SELECT count(*) FROM dblock_queue_%s WHERE queue = '%s'", table, x.key)))
		}
	}
	stop()
	x.told(<-worked)
	closing, cancel := context.WithTimeout(ctx, answersPatience)
	defer cancel()
	x.told(q.Close(closing))
	return err
}

// enqueueAll enqueues jobs of each sort and asks after them. It returns one that is not due for an hour.
func (e Queue) enqueueAll(ctx context.Context, x *answersTrial, q *queue.Queue) (late queue.ID) {
	id, err := q.Enqueue(ctx, queue.Task{Kind: "job", Args: 1, Queue: x.key})
	x.told(err)
	_, err = q.EnqueueMany(ctx, []queue.Task{
		{Kind: "job", Args: 2, Queue: x.key}, {Kind: "job", Args: 3, Queue: x.key, Delay: 10 * time.Millisecond},
		{Kind: "job", Args: 4, Queue: x.key, Unique: "one"}, {Kind: "job", Args: 5, Queue: x.key, Group: "g", AtMost: 1},
		{Kind: "job", Args: 6, Queue: x.key, Group: "g", AtMost: 1},
	})
	x.told(err)
	_, err = q.Enqueue(ctx, queue.Task{Kind: "job", Args: 7, Queue: x.key, Unique: "one"})
	x.told(err)
	_, err = q.Show(ctx, id)
	x.told(err)
	_, err = q.List(ctx, queue.Filter{Queue: x.key})
	x.told(err)
	_, err = q.Stats(ctx)
	x.told(err)
	late, err = q.Enqueue(ctx, queue.Task{Kind: "job", Args: 8, Queue: x.key, Delay: time.Hour})
	x.told(err)
	_, err = q.Cancel(ctx, late)
	x.told(err)
	return late
}
