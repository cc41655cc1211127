package queue

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/callback"
	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// do runs one job, whatever its handler does.
func (w *worker) do(j *claimedJob, h *handler) {
	r := &attempt{w: w, job: j, info: w.info(j), began: time.Now(), h: h}
	r.ctx.above = j.claim.owner.ctx
	if limit := r.limit(); limit >= 0 {
		r.ctx.deadline = r.began.Add(limit)
		if h.begin != nil { // the handler's time begins when it has its transaction, for which it may wait as long
			r.ctx.deadline = r.ctx.deadline.Add(limit)
		}
	}
	j.context.Store(&r.ctx)
	returned := false
	defer func() {
		if !returned {
			r.err = panicOf(recover(), debug.Stack())
		}
		r.rollback() // where it panicked
		r.timedOut = r.timedOut || r.ctx.timedOut()
		r.ctx.end(nil)
		if r.state != attemptSkipped {
			j.took = max(time.Since(r.began), 1)
		}
		r.decide()
	}()
	if j.cancelled.Load() { // before it began; later its context ends
		r.err = ErrCancelled
	} else {
		r.err = r.runHandler(&r.ctx)
	}
	returned = true
}

// attempt is one run of a handler at a job.
type attempt struct {
	w        *worker
	job      *claimedJob
	info     Info
	h        *handler
	began    time.Time
	ctx      jobContext
	err      error
	timedOut bool
	state    attemptState

	tx   driver.HandlerTx   // the handler's, while it is open
	free context.CancelFunc // ends the context of that
}

// attemptState is how far an attempt is.
type attemptState int

const (
	attemptWaits     attemptState = iota // the handler was not called.
	attemptRuns                          // it was, once or again.
	attemptSkipped                       // it was not, and is not to be: the worker rests, or stops.
	attemptCommitted                     // the job has ended with the handler's transaction.
	attemptRefused                       // the claim was taken away, so the end of the job can't be recorded.
)

// errNotBegun is what a middleware gets from next if the job is handed back instead.
var errNotBegun = errors.New("queue: the job was not begun: its queue is paused, or its worker stops")

// starts is called right before the handler. It refuses a job that has not begun if the worker
// rests.
func (r *attempt) starts() error {
	if r.state != attemptRuns && !r.w.state.is(working) {
		r.state = attemptSkipped
		return errNotBegun
	}
	r.state = attemptRuns
	return nil
}

func (r *attempt) limit() time.Duration {
	if r.h.timeout != 0 {
		return r.h.timeout
	}
	return r.w.o.Timeout
}

// errJobEnded is what next returns once the middlewares have returned.
var errJobEnded = errors.New("queue: the middleware has returned: the job has ended")

// call calls the handler through the middlewares. It returns after the handler has, even if a
// middleware does not wait for it: the handler may use the job's transaction until then.
func (r *attempt) call(ctx context.Context) error {
	around := r.w.o.Middleware
	var handling sync.Mutex
	over := false
	next := func(ctx context.Context) error {
		handling.Lock()
		defer handling.Unlock()
		if over {
			return errJobEnded
		}
		return callback.Sound(r.h.run(ctx, r))
	}
	defer func() {
		handling.Lock()
		defer handling.Unlock()
		over = true
	}()
	for i := len(around) - 1; i >= 0; i-- {
		inner, m := next, around[i]
		next = func(ctx context.Context) error { return m(ctx, r.info, inner) }
	}
	return callback.Sound(next(ctx))
}

// decide says what becomes of the job, and has it sent.
func (r *attempt) decide() {
	var s *snoozed
	var d *discarded
	var c *cancelled
	var p *putOff
	see := &r.w.q.o.Observer
	switch {
	case r.state == attemptSkipped: // whatever a middleware makes of it
		r.w.sync.releaseUnbegun(r.job)
	case r.err == nil:
		if see.Completed != nil {
			see.Completed(r.info, time.Since(r.began))
		}
		if r.state == attemptCommitted {
			r.w.sync.settled(r.job)
			return
		}
		r.w.sync.ended(end{claimedJob: r.job, outcome: outcomeCompleted, attempt: r.job.Attempt + 1})
	case r.state == attemptRefused: // to be refused, and counted, with the others of its claim
		r.w.sync.releaseUnbegun(r.job)
	case r.job.cancelled.Load():
		r.drop(ErrCancelled)
	case errors.As(r.err, &s):
		again := min(s.d, MaxDelay)
		if see.Snoozed != nil {
			see.Snoozed(r.info, again)
		}
		r.w.sync.ended(end{claimedJob: r.job, outcome: outcomeRescheduled, attempt: r.job.Attempt, delay: again})
	case errors.As(r.err, &c):
		r.drop(reason(r.err, c, c.error))
	case errors.As(r.err, &d):
		r.discard(reason(r.err, d, d.error))
	case errors.Is(context.Cause(r.job.claim.owner.ctx), dblock.ErrLost): // as a rescue would end it, if none has come
		r.fail()
	case r.job.claim.owner.ctx.Err() != nil: // the worker stops
		r.w.sync.releaseUnbegun(r.job)
	case errors.As(r.err, &p):
		r.w.q.trouble(p.doing, p.err)
		r.w.sync.ended(end{claimedJob: r.job, outcome: outcomeRescheduled, attempt: r.job.Attempt, delay: pace.Jitter(p.again)})
	default:
		r.fail()
	}
}

// reason is what a handler said when it ended its job: the inner error, or all of it if the
// handler has put words around the decision.
func reason(said, decision, inner error) error {
	if said == decision {
		return inner
	}
	return said
}

// drop ends a job that is not wanted any more.
func (r *attempt) drop(why error) {
	r.w.q.cancelled(r.info, why)
	r.w.sync.ended(end{claimedJob: r.job, outcome: outcomeCancelled, attempt: r.job.Attempt + 1, failure: failure(why)})
}

// fail has the job tried again, or gives it up.
func (r *attempt) fail() {
	if r.timedOut {
		r.err = fmt.Errorf("%w of %v: %w", ErrTimeout, r.limit(), r.err)
	}
	if r.info.Attempt >= r.info.MaxAttempts {
		r.discard(r.err)
		return
	}
	again := r.w.q.pauseAfter(r.info.Kind, r.w.o.Backoff, r.info.Attempt, r.err)
	if f := r.w.q.o.Observer.Failed; f != nil {
		f(r.info, r.err, again)
	}
	r.w.sync.ended(end{claimedJob: r.job, outcome: outcomeRescheduled, attempt: r.job.Attempt + 1, failure: failure(r.err), delay: again})
}

// discard gives the job up for good.
func (r *attempt) discard(err error) {
	if f := r.w.q.o.Observer.Discarded; f != nil {
		f(r.info, err)
	}
	r.w.sync.ended(end{claimedJob: r.job, outcome: outcomeDiscarded, attempt: r.job.Attempt + 1, failure: failure(err)})
}
