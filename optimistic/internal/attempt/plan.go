// Package attempt repeats optimistic updates, for package optimistic and its drivers: how often
// they are tried, the pauses between attempts, and the queue of callers of one process for one row.
//
// Update and Do of a driver make a Plan of the caller's options, and run it:
//
//	attempt ── nil, or an error that is not repeated ──> return
//	   ^  └─── a conflict ──> pause, or wait in the row's queue
//	   └──────────────────────────┘
//
// After EscalateAfter conflicts an attempt is a transaction that takes the caller's lock first.
package attempt

import (
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/callback"
)

// Plan describes how often an update is tried, as its options say it.
type Plan struct {
	Attempts      int
	First, Max    time.Duration // bounds of the first pause, and of all
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

// Escalate is the Option that has the attempts after the first n take a lock. row names what it
// locks; nil: it is not known.
func Escalate(n int, lock, row any) Opt {
	return func(p *Plan) { p.EscalateAfter, p.Lock, p.Row = n, lock, row }
}

// Limits of a Plan.
const (
	maxAttempts = 1_000
	maxPause    = time.Minute
)

// defaults: the first pause is about as long as a read and a write take on a database near by. On
// one row that many callers want at once ten attempts are too few for some of them, unless a lock
// is taken.
var defaults = Plan{Attempts: 10, First: 2 * time.Millisecond, Max: 100 * time.Millisecond}

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
			return p, Invalid("options", "one of them is nil")
		}
		o.apply(&p)
	}
	p.OnConflict = callback.Func2(nil, p.OnConflict)
	return p, nil
}

func (p *Plan) check() error {
	switch {
	case p.Attempts < 1 || p.Attempts > maxAttempts:
		return Invalid("Attempts", "%d is not within 1 to %d", p.Attempts, maxAttempts)
	case p.First < 0 || p.Max < p.First || p.Max > maxPause:
		return Invalid("Backoff", "%v to %v: give two durations in order, none less than 0 nor more than %v", p.First, p.Max, maxPause)
	case p.Lock != nil && (p.EscalateAfter < 1 || p.EscalateAfter >= p.Attempts):
		return Invalid("EscalateAfter", "after %d attempts of %d: there has to be one before, and one after", p.EscalateAfter, p.Attempts)
	}
	for _, f := range p.RetryIf {
		if f == nil {
			return Invalid("RetryIf", "it is nil")
		}
	}
	return nil
}

// Invalid says which argument is refused. Nothing was written.
func Invalid(field, format string, args ...any) error {
	return &dblock.InvalidError{Field: field, Reason: fmt.Sprintf(format, args...)}
}
