package queue

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/callback"
	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// handle runs jobs, one after the other, until there are no more.
func (w *worker) handle() {
	returned := false
	defer func() {
		if !returned { // a handler has ended this goroutine: another one takes its place
			go w.handle()
			return
		}
		w.handlers.Done()
	}()
	for t := w.line.next(); t != nil; t = w.line.next() {
		if w.rests() || t.of.of.ctx.Err() != nil {
			w.handBack(t)
			continue
		}
		h := w.q.handlerOf(t.Kind)
		switch {
		case h == nil:
			w.leave(t)
		case h.begin != nil, w.begin(t): // a handler with a transaction begins when it has that
			w.do(t, h)
		}
	}
	returned = true
}

// do runs one job, whatever its handler does.
func (w *worker) do(t *task, h *handler) {
	r := &run{w: w, task: t, info: w.info(t), began: time.Now(), h: h}
	r.ctx.above = t.of.of.ctx
	if limit := r.limit(); limit >= 0 {
		r.ctx.deadline = r.began.Add(limit)
		if h.begin != nil { // the handler's time begins when it has its transaction, for which it may wait as long
			r.ctx.deadline = r.ctx.deadline.Add(limit)
		}
	}
	t.context.Store(&r.ctx)
	returned := false
	defer func() {
		if !returned {
			r.err = panicOf(recover(), debug.Stack())
		}
		r.rollback() // where it panicked
		r.timedOut = r.timedOut || r.ctx.timedOut()
		r.ctx.end(nil)
		if !r.unbegun {
			t.took = max(time.Since(r.began), 1)
		}
		r.decide()
	}()
	if t.cancelled.Load() { // before it began; later its context ends
		r.err = ErrCancelled
	} else {
		r.err = r.attempt(&r.ctx)
	}
	returned = true
}

func (w *worker) info(t *task) Info {
	return Info{
		ID: ID(t.ID), Queue: w.o.Queue, Kind: t.Kind, Priority: t.Priority, Attempt: int(t.Attempt) + 1, MaxAttempts: int(t.MaxAttempts),
		EnqueuedAt: t.EnqueuedAt, ReadyAt: t.ReadyAt,
	}
}

// run is one attempt at a job.
type run struct {
	w        *worker
	task     *task
	info     Info
	h        *handler
	began    time.Time
	ctx      jobContext
	err      error
	timedOut bool
	begun    bool // the handler was called
	unbegun  bool // it was not, and is not to be

	work      driver.HandlerTx   // the handler's transaction, while it is open
	free      context.CancelFunc // ends the context of that
	committed bool               // the job has ended with it
	refused   bool               // the claim was taken away: the job has not ended with it, or that can't be told
}

func (r *run) limit() time.Duration {
	if r.h.timeout != 0 {
		return r.h.timeout
	}
	return r.w.o.Timeout
}

// errOver is what next returns once the middlewares have returned.
var errOver = errors.New("queue: the middleware has returned: the job has ended")

// call calls the handler through the middlewares. It returns after the handler has, even if a middleware does not wait for it: the
// handler may use the job's transaction until then.
func (r *run) call(ctx context.Context) error {
	around := r.w.o.Middleware
	var handling sync.Mutex
	over := false
	next := func(ctx context.Context) error {
		handling.Lock()
		defer handling.Unlock()
		if over {
			return errOver
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
func (r *run) decide() {
	var s *snoozed
	var d *discarded
	var c *cancelled
	var p *putOff
	see := &r.w.q.o.Observer
	switch {
	case r.unbegun: // whatever a middleware makes of it
		r.w.handBack(r.task)
	case r.err == nil:
		if see.Completed != nil {
			see.Completed(r.info, time.Since(r.began))
		}
		if r.committed {
			r.w.settled(r.task)
			return
		}
		r.w.ended(end{task: r.task, what: finished})
	case r.refused: // to be refused, and counted, with the others of its claim
		r.w.handBack(r.task)
	case r.task.cancelled.Load():
		r.drop(ErrCancelled)
	case errors.As(r.err, &s):
		if see.Snoozed != nil {
			see.Snoozed(r.info, s.d)
		}
		r.w.ended(end{task: r.task, what: deferred, attempt: r.task.Attempt, delay: min(s.d, MaxDelay)})
	case errors.As(r.err, &c):
		r.drop(reason(r.err, c, c.error))
	case errors.As(r.err, &d):
		r.bury(reason(r.err, d, d.error))
	case r.task.of.of.ctx.Err() != nil: // the worker stops, or has lost its claims
		r.w.handBack(r.task)
	case errors.As(r.err, &p):
		r.w.q.trouble(p.doing, p.err)
		r.w.ended(end{task: r.task, what: deferred, attempt: r.task.Attempt, delay: pace.Jitter(p.again)})
	default:
		r.fail()
	}
}

// reason is what a handler said when it gave up its job: the inner error, or all of it if the handler has put words around the decision.
func reason(said, decision, inner error) error {
	if said == decision {
		return inner
	}
	return said
}

// drop ends a job that nobody wants any more.
func (r *run) drop(why error) {
	r.w.q.cancelled(r.info, why)
	r.w.ended(end{task: r.task, what: finished, dropped: true, failure: failure(why)})
}

// fail has the job tried again, or gives it up.
func (r *run) fail() {
	if r.timedOut {
		r.err = fmt.Errorf("%w of %v: %w", ErrTimeout, r.limit(), r.err)
	}
	if r.info.Attempt >= r.info.MaxAttempts {
		r.bury(r.err)
		return
	}
	again := r.w.q.pauseAfter(r.info.Kind, r.w.o.Backoff, r.info.Attempt, r.err)
	if f := r.w.q.o.Observer.Failed; f != nil {
		f(r.info, r.err, again)
	}
	r.w.ended(end{task: r.task, what: deferred, attempt: r.task.Attempt + 1, failure: failure(r.err), delay: again})
}

// pauseAfter is how long a job waits after an attempt that failed: as its kind's handler says, or else as backoff does.
func (q *Queue) pauseAfter(kind string, backoff func(int, error) time.Duration, attempt int, err error) time.Duration {
	if h := q.handlerOf(kind); h != nil && h.backoff != nil {
		backoff = h.backoff
	}
	var again time.Duration
	if p := callback.Try(func() { again = backoff(attempt, err) }); p != nil {
		q.trouble(fmt.Sprintf("calling the backoff of jobs of kind %q", kind), p)
		again = defaultBackoff(attempt, err)
	}
	return min(max(again, 0), MaxDelay)
}

// bury gives the job up for good.
func (r *run) bury(err error) {
	if f := r.w.q.o.Observer.Discarded; f != nil {
		f(r.info, err)
	}
	r.w.ended(end{task: r.task, what: buried, attempt: r.task.Attempt + 1, failure: failure(err)})
}
