package queue

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/root"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// Next is the rest of what is to be done for a job: the handler, in the end.
type Next func(ctx context.Context) error

// Middleware is called for each job and calls next, once or not at all. If it returns before next
// does, the job ends when the handler has returned. If the queue is paused or the worker stops
// before the handler is called, next returns an error. Then the job is handed back, whatever the
// middleware returns.
type Middleware func(ctx context.Context, job Info, next Next) error

// HandlerOption changes how the jobs of one kind are run.
type HandlerOption func(*handler)

// Timeout is after how long the context of a handler ends; negative: never. Default: that of
// WorkerOptions.
func Timeout(d time.Duration) HandlerOption { return func(h *handler) { h.timeout = d } }

// Backoff says how long to wait before a job of this kind is tried again. Default: that of
// WorkerOptions.
func Backoff(f func(attempt int, err error) time.Duration) HandlerOption {
	return func(h *handler) { h.backoff = f }
}

// DecodeWith decodes the jobs of this kind with a Codec of their own: what enqueues them must
// encode them so. Default: Options.Codec.
func DecodeWith(c Codec) HandlerOption { return func(h *handler) { h.codec = c } }

// handler is one without its type.
type handler struct {
	run     func(ctx context.Context, r *attempt) error
	begin   driver.Begin  // of the transaction that it has, and with which its job ends; nil: it has none
	timeout time.Duration // 0: the worker's
	backoff func(int, error) time.Duration
	codec   Codec
}

// Handle registers the handler of a kind of jobs, for all workers of q. It is called for several
// jobs at once. nil completes the job, and Snooze, Discard and Cancel do what they say. After any
// other error, and a panic, the job runs again after the backoff, until its attempts are used up.
//
// A job runs at least once: its process may die when the work is done and the job has not yet
// ended. (HandleTx of a driver has both committed together.) ctx ends when the job's time is up
// (ErrTimeout), the job is cancelled (ErrCancelled), the process has lost its claims
// (dblock.ErrLost) or the worker stops (ErrStopped): context.Cause says which. A handler that
// returns nil all the same completes its job, unless the claims are lost.
//
// A worker leaves jobs of kinds without a handler to other processes (ErrUnknownKind). So processes
// may know different kinds. If few of many know a kind, give its jobs a queue of their own: they
// wait for less.
//
// Errors: dblock.ErrInvalid, also if the kind has a handler.
func Handle[T any](q *Queue, kind string, fn func(ctx context.Context, job Job[T]) error, opts ...HandlerOption) error {
	if fn == nil {
		return noHandler(kind)
	}
	return q.handlers.register(kind, opts, func(h *handler) {
		h.run = func(ctx context.Context, r *attempt) error {
			job, err := decoded[T](r)
			if err != nil {
				return err
			}
			if h.begin != nil {
				return r.inTx(ctx, func(ctx context.Context) error { return fn(ctx, job) })
			}
			if err := r.starts(); err != nil {
				return err
			}
			return fn(ctx, job)
		}
	})
}

func noHandler(kind string) error {
	return &dblock.InvalidError{Field: "handler", Reason: fmt.Sprintf("that of kind %q is nil", kind)}
}

// decoded is the job as its handler gets it.
func decoded[T any](r *attempt) (job Job[T], err error) {
	job.Info = r.info
	payload := r.job.Payload
	if _, copies := r.h.codec.(JSON); !copies && (r.h.begin != nil || len(r.w.o.Middleware) > 0) {
		payload = bytes.Clone(payload) // the handler may run again, after it has changed what it got
	}
	if err := r.h.codec.Decode(payload, &job.Args); err != nil {
		return job, fmt.Errorf("%w: of kind %q, into %T: %w", ErrDecode, r.info.Kind, job.Args, err)
	}
	return job, nil
}

// registry has the handlers of a Queue.
type registry struct {
	codec Codec // that of handlers that have none

	mu      sync.RWMutex
	all     map[string]*handler
	unknown map[string]time.Time // kinds without a handler, and when that was reported last
}

// register makes the handler of a kind, with what makes it one of its type.
func (g *registry) register(kind string, opts []HandlerOption, as func(*handler)) error {
	if err := root.CheckText("kind", kind, 1, MaxNameBytes); err != nil {
		return err
	}
	h := &handler{codec: g.codec}
	for _, o := range opts {
		if o == nil {
			return &dblock.InvalidError{Field: "options", Reason: fmt.Sprintf("one of those of kind %q is nil", kind)}
		}
		o(h)
	}
	as(h)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.all[kind] != nil {
		return &dblock.InvalidError{Field: "kind", Reason: fmt.Sprintf("%q has a handler already", kind)}
	}
	g.all[kind] = h
	return nil
}

// of returns nil if there is none.
func (g *registry) of(kind string) *handler {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.all[kind]
}

// backoffOf is how long jobs of a kind wait after an attempt that failed: as its handler says, or
// else as backoff does.
func (g *registry) backoffOf(kind string, backoff func(int, error) time.Duration) func(int, error) time.Duration {
	if h := g.of(kind); h != nil && h.backoff != nil {
		return h.backoff
	}
	return backoff
}

// reportsUnknown returns whether to report that a kind has no handler.
func (g *registry) reportsUnknown(kind string, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if at, told := g.unknown[kind]; told && now.Sub(at) < reportUnknown {
		return false
	}
	if len(g.unknown) >= maxUnknown {
		clear(g.unknown)
	}
	g.unknown[kind] = now
	return true
}
