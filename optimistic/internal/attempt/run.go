package attempt

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/callback"
	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Run calls once until its error is nil or one that is not repeated, or as often as the plan says.
// The first attempt is 1. locked reports that once has to take the plan's lock. once leaves nothing
// written if it returns an error that is repeated.
func (p *Plan) Run(ctx context.Context, once func(ctx context.Context, attempt int, locked bool) error) error {
	if ctx.Err() != nil {
		return waitEnded(ctx, 0, nil)
	}
	w := waiter{row: p.Row}
	if p.nested = depthOf(ctx) > 0; p.nested { // a wait in a queue while others wait for this one may never end
		w.row = nil
	}
	defer w.leave()
	var err error
	for attempt := 1; ; attempt++ {
		if !w.wait(ctx, attempt) {
			return waitEnded(ctx, attempt-1, err)
		}
		within, locked := ctx, p.escalates(attempt)
		if w.atFront || locked {
			within = deeper(ctx)
		}
		err = callback.Sound(once(within, attempt, locked))
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
		if locked || p.Row == nil && !p.escalates(attempt+1) {
			pause = p.pause(attempt)
		}
		if pace.Sleep(ctx, pause) != nil {
			return waitEnded(ctx, attempt, err)
		}
	}
}

// escalates reports whether that attempt is made under the lock.
func (p *Plan) escalates(attempt int) bool {
	return p.Lock != nil && (attempt > p.EscalateAfter || p.nested)
}

// again reports whether it may be tried again.
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
	bound := p.Max
	if shift := attempts - 1; shift < 32 && p.First < p.Max>>shift {
		bound = p.First << shift
	}
	return rand.N(bound + 1)
}
