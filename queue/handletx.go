package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/queue/internal/engine"
)

// HandleIn is what HandleTx of an engine room does, with its driver's transactions.
func HandleIn[T, Tx any](q *Queue, kind string, fn func(ctx context.Context, tx Tx, job Job[T]) error, opts ...HandlerOption) error {
	if fn == nil {
		return noHandler(kind)
	}
	of, ours := q.engine.(engine.Beginner[Tx])
	if !ours {
		return &dblock.InvalidError{Field: "queue", Reason: fmt.Sprintf("it has no transactions of the type %T: call HandleTx of the package that made it", *new(Tx))}
	}
	return q.register(kind, opts, func(h *handler) {
		h.inTx = true
		h.run = func(ctx context.Context, r *run) error {
			job, err := decoded[T](r)
			if err != nil {
				return err
			}
			r.rollback() // of a middleware that calls it again
			tx, w, err := of.Begin(ctx)
			if err != nil {
				return &putOff{"beginning a transaction for a job", beginAgain, err}
			}
			r.work = w
			done := false
			defer func() { // where fn panics, too: whatever a middleware makes of that, nothing half done is committed
				if !done {
					r.rollback()
				}
			}()
			if err := r.starts(); err != nil {
				return err
			}
			err = fn(ctx, tx, job)
			done = err == nil
			return err
		}
	})
}

// putOff is no fault of the handler's: its transaction could not begin, or its job could not end. The job is run again after a while.
type putOff struct {
	doing string
	again time.Duration // about so long
	err   error
}

func (e *putOff) Error() string { return fmt.Sprintf("queue: %s: %v", e.doing, e.err) }

func (e *putOff) Unwrap() error { return e.err }

// endAgain is about how long a job waits if another transaction has a row locked that its end needs.
const endAgain = 250 * time.Millisecond

// rollback gives up what the handler has written, and its connection.
func (r *run) rollback() {
	if r.work == nil {
		return
	}
	r.work.Rollback(context.Background())
	r.work = nil
}
