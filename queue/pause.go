package queue

import (
	"cmp"
	"context"

	"github.com/dblock-go/dblock/internal/root"
)

// Pause stops workers from claiming jobs of a queue, until Resume: "" is the default one. Jobs that
// have begun go on. Jobs that were claimed and have not begun are handed back: no worker of q
// begins one once Pause has returned. Others may for about one second longer. They keep their place
// in the order, and it is no attempt. Jobs are enqueued, scheduled and rescued as ever. Of a queue
// that is paused it changes nothing.
//
// Errors: dblock.ErrInvalid, and those of the database.
func (q *Queue) Pause(ctx context.Context, queue string) error {
	if err := q.begin(); err != nil {
		return err
	}
	defer q.calls.Done()
	err := q.setPaused(ctx, queue, "pausing a queue", true)
	if err != nil {
		return err
	}
	q.notices.each(cmp.Or(queue, DefaultQueue), (*syncer).pause)
	return nil
}

// Resume ends a Pause. Workers of this process see it at once, and those of others as they learn of
// jobs.
//
// Errors: dblock.ErrInvalid, and those of the database.
func (q *Queue) Resume(ctx context.Context, queue string) error {
	if err := q.begin(); err != nil {
		return err
	}
	defer q.calls.Done()
	err := q.setPaused(ctx, queue, "resuming a queue", false)
	if err == nil {
		q.notices.announce(cmp.Or(queue, DefaultQueue))
	}
	return err
}

func (q *Queue) setPaused(ctx context.Context, queue, what string, paused bool) error {
	queue, err := queueName(queue)
	if err != nil {
		return err
	}
	turn, _ := q.pausing.LoadOrStore(queue, make(semaphore, 1))
	return q.db.again(ctx, what, func(ctx context.Context) error {
		return turn.(semaphore).do(ctx, func() error {
			return q.pauses.do(ctx, func() error { return q.driver.Admin().SetPaused(ctx, queue, paused) })
		})
	})
}

// queueName checks the name of a queue that a caller gave.
func queueName(name string) (string, error) {
	if name == "" {
		return DefaultQueue, nil
	}
	return name, root.CheckText("queue", name, 1, MaxNameBytes)
}
