package attempt

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/callback"
	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Plan describes how often an update is tried, as its options say it.
type Plan struct {
	Attempts      int
	First, Most   time.Duration // bounds of the first pause, and of all
	OnConflict    func(err error, attempt int)
	RetryIf       []func(error) bool
	EscalateAfter int // attempts, after which Lock is taken; 0: it never is
	Lock          any // a driver's; nil: none
	Row           any // which one Lock locks, comparable: callers of one process queue for it; nil: it is not known

	IsConflict func(error) bool // the driver's; nil: there is no driver
	CallersTx  bool             // one attempt, as the transaction is the caller's, or may be

	nested bool // within an attempt of another update that keeps others waiting
}

// Option is an option of package optimistic, which only this module can make.
type Option interface{ apply(*Plan) }

// Opt is an Option that changes the plan.
type Opt func(*Plan)

func (o Opt) apply(p *Plan) { o(p) }

// Limits of a Plan.
const (
	maxAttempts = 1_000
	maxPause    = time.Minute
)

// defaults: the first pause is about as long as a read and a write take on a database near by. On
// one row that many callers want at once ten attempts are too few for some of them, unless a lock is
// taken.
var defaults = Plan{Attempts: 10, First: 2 * time.Millisecond, Most: 100 * time.Millisecond}

// New applies options and refuses values out of range (*dblock.InvalidError).
func New[O Option](opts []O) (Plan, error) {
	if len(opts) == 0 {
		return defaults, nil
	}
	p, err := chosen(opts)
	if err != nil {
		return p, err
	}
	return p, p.check()
}

// chosen is a function of its own because options may keep the plan, which puts it on the heap.
func chosen[O Option](opts []O) (p Plan, err error) {
	p = defaults
	for _, o := range opts {
		if any(o) == nil {
			return p, invalid("options", "one of them is nil")
		}
		o.apply(&p)
	}
	p.OnConflict = callback.Func2(nil, p.OnConflict)
	return p, nil
}

func (p *Plan) check() error {
	switch {
	case p.Attempts < 1 || p.Attempts > maxAttempts:
		return invalid("Attempts", "%d is not within 1 to %d", p.Attempts, maxAttempts)
	case p.First < 0 || p.Most < p.First || p.Most > maxPause:
		return invalid("Backoff", "%v to %v: give two durations in order, none less than 0 nor more than %v", p.First, p.Most, maxPause)
	case p.Lock != nil && (p.EscalateAfter < 1 || p.EscalateAfter >= p.Attempts):
		return invalid("EscalateAfter", "after %d attempts of %d: there has to be one before, and one after", p.EscalateAfter, p.Attempts)
	}
	for _, f := range p.RetryIf {
		if f == nil {
			return invalid("RetryIf", "it is nil")
		}
	}
	return nil
}

// Escalates tells whether that attempt, the first is 1, is made under the lock.
func (p *Plan) Escalates(attempt int) bool {
	return p.Lock != nil && (attempt > p.EscalateAfter || p.nested)
}

// Run calls once until its error is nil or one that is not repeated, or as often as the plan says.
// once leaves nothing written if it returns an error that is repeated.
func (p *Plan) Run(ctx context.Context, once func(ctx context.Context, attempt int) error) error {
	if ctx.Err() != nil {
		return &endedError{after: 0, cause: context.Cause(ctx), ended: ctx.Err()}
	}
	var err error
	depth := depthOf(ctx)
	place := place{row: p.Row}
	if p.nested = depth > 0; p.nested { // a wait in a queue while others wait for this one may never end
		place.row = nil
	}
	defer place.leave()
	for attempt := 1; ; attempt++ {
		if !place.turn(ctx, attempt) {
			return &endedError{after: attempt - 1, cause: context.Cause(ctx), ended: ctx.Err(), last: Counted(err, attempt-1)}
		}
		within := ctx
		if place.atFront || p.Escalates(attempt) {
			within = context.WithValue(ctx, depthKey{}, depth+1)
		}
		err = callback.Sound(once(within, attempt))
		if err == nil {
			return nil
		}
		if stopped, ok := err.(*stop); ok {
			if p.nested || !errors.As(stopped.err, new(*crossedError)) {
				return stopped.err
			}
			err = stopped.err
		}
		if !p.again(err) {
			return p.crossed(err)
		}
		if p.OnConflict != nil {
			p.OnConflict(err, attempt)
		}
		switch {
		case p.CallersTx:
			return p.ofCallersTx(err)
		case attempt == p.Attempts:
			return p.exhausted(err, attempt)
		}
		var pause time.Duration // a caller that waits for the lock, or in the queue, waits there
		if p.Escalates(attempt) || p.Row == nil && !p.Escalates(attempt+1) {
			pause = p.pause(attempt)
		}
		if pace.Sleep(ctx, pause) != nil {
			return &endedError{after: attempt, cause: context.Cause(ctx), ended: ctx.Err(), last: Counted(err, attempt)}
		}
	}
}

// again tells whether it may be tried again.
func (p *Plan) again(err error) bool {
	switch {
	case sqlerr.IsFinal(err), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false // it may be written, or the caller has given up
	case !p.nested && errors.As(err, new(*crossedError)):
		return true
	case errors.Is(err, ErrStale), errors.Is(err, dblock.ErrConflict), p.IsConflict != nil && p.IsConflict(err):
		return true
	}
	again := false
	for _, retry := range p.RetryIf {
		callback.Safely(nil, func() { again = again || retry(err) })
	}
	return again
}

// pause is how long to wait after so many attempts: anything from nothing to a bound that doubles.
// Callers that met once must not meet again; the wider they are spread, the less they do.
func (p *Plan) pause(attempts int) time.Duration {
	bound := p.Most
	if shift := attempts - 1; shift < 32 && p.First < p.Most>>shift {
		bound = p.First << shift
	}
	return rand.N(bound + 1)
}

// IsDefinite reports whether an error says by itself what became of a statement.
func IsDefinite(err error) bool {
	if _, stopped := err.(*stop); stopped || err == nil {
		return true
	}
	for _, kind := range []error{
		ErrStale, ErrNotFound, ErrSuppressed, ErrTooMany, sql.ErrNoRows, dblock.ErrUnavailable, dblock.ErrOutcomeUnknown, dblock.ErrOverloaded,
		dblock.ErrBusy, dblock.ErrConflict, dblock.ErrTxEnded, dblock.ErrClosed, dblock.ErrUnsupported, dblock.ErrInvalid,
	} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// Stop makes an error that ends Run as it is, whatever it is.
func Stop(err error) error { return &stop{err} }

// stop does not unwrap: until Run returns it, it must match nothing.
type stop struct{ err error }

func (e *stop) Error() string { return fmt.Sprint(e.err) }

// CheckSteps refuses functions of an update that are nil (*dblock.InvalidError).
func CheckSteps(load, mutate, save bool) error {
	switch {
	case !load:
		return invalid("load", "it is nil")
	case !mutate:
		return invalid("mutate", "it is nil")
	case !save:
		return invalid("save", "it is nil")
	}
	return nil
}

// invalid says which argument is refused. Nothing was sent.
func invalid(field, format string, args ...any) error {
	return &dblock.InvalidError{Field: field, Reason: fmt.Sprintf(format, args...)}
}
