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
				return &notBegun{err}
			}
			r.work = w
			done := false
			defer func() { // where fn panics, too: whatever a middleware makes of that, nothing half done is committed
				if !done {
					r.rollback()
				}
			}()
			err = fn(ctx, tx, job)
			done = err == nil
			return err
		}
	})
}

// notBegun is no fault of the handler's, which was not called.
type notBegun struct{ err error }

func (e *notBegun) Error() string {
	return fmt.Sprintf("queue: no transaction could begin for a job: %v", e.err)
}

func (e *notBegun) Unwrap() error { return e.err }

// beginAgain is about after how long a job is run again whose transaction could not begin.
const beginAgain = time.Second

// rollback gives up what the handler has written, and its connection.
func (r *run) rollback() {
	if r.work == nil {
		return
	}
	r.work.Rollback(context.Background())
	r.work = nil
}
