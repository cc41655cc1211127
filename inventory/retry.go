package inventory

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/merge"
	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

const (
	firstPause  = 5 * time.Millisecond   // before the second attempt, at most
	longestStep = 250 * time.Millisecond // pauses double up to this
	sharedTries = 4                      // after conflicts that one of a batch may cause
	awaitTries  = 8                      // after a key was taken, of one that has waited for its key
	dialTries   = 3                      // while nothing was ever sent; a pool may hold several dead connections
)

// ended is how a retry ended that got no answer from the database.
type ended struct {
	as    error // what the caller is told: one of dblock's errors, or a context's
	cause error // what the driver said last
}

func (e *ended) Error() string   { return e.cause.Error() }
func (e *ended) Unwrap() []error { return []error{e.as, e.cause} }

// ranOut reports that a retry ended because others were in the way for all of its time.
func ranOut(err error) bool {
	var end *ended
	return errors.As(err, &end) && sqlerr.IsContended(end.as)
}

// attempt is how a statement is to be tried.
type attempt struct {
	outright  bool   // the short way first
	carefully bool   // that of what may be recorded, or over its limit
	brief     bool   // it waits for no lock that others might have for long
	free      bool   // it passes over every row that is locked
	behind    string // what it waits for: see merge.Answer
	awaits    bool   // it begins with a wait for the key of the order
	own       bool   // from this process's allotment
	assumeNew bool   // without looking up what is recorded
	doubt     bool   // one before it may have been committed, or may yet be
	shared    bool   // it holds others up, or may go on apart: conflicts end it
}

// retry runs what until it says yes or no, within Options.Timeout. An attempt whose connection
// was lost may have been committed: from then on only an attempt that completes can end it well,
// as it finds what was recorded.
func (s *Store) retry(parent context.Context, this attempt, what func(context.Context, attempt) error) error {
	ctx, cancel := context.WithTimeout(parent, s.o.Timeout)
	defer cancel()
	unreachable := 0
	var met error // the last conflict, or else the first lock that did not come in time
	for n := 0; ; n++ {
		err := what(ctx, this)
		if err == nil {
			return nil
		}
		is := s.classify(err)
		if s.named(err) == sqlerr.Retryable || met == nil && s.driver.IsLocked(err) {
			met = err
		}
		if this.shared && isHookBusy(err) && !this.doubt && !sqlerr.Ended(ctx) {
			return &blockedError{err, true}
		}
		switch is {
		case sqlerr.Retryable, sqlerr.Duplicate:
			switch {
			case this.doubt, sqlerr.IsTableLocked(err): // for all of a batch alike
			case s.blocks(ctx, err, this):
				return &blockedError{err, false}
			case this.shared && n+1 >= sharedTries:
				return &blockedError{err, true}
			case this.awaits && n+1 >= awaitTries && is == sqlerr.Duplicate && !driver.IsKeyOpen(err):
				return &driver.HookError{Err: err} // it is not the order's own key, which would be found recorded
			}
		case sqlerr.Unresolved:
			this.doubt, this.brief, this.free = true, false, false
			merge.StandAside(ctx) // for as long as it takes
		case sqlerr.Unavailable:
			unreachable++
			if !this.doubt && unreachable == dialTries {
				return &ended{sqlerr.Public(is), err}
			}
		case sqlerr.Busy:
			switch {
			case this.doubt:
			case s.blocks(ctx, err, this):
				return &blockedError{err, false}
			case this.shared && !s.driver.Waited(err) && !sqlerr.Ended(ctx):
				return &blockedError{err, true}
			case met != nil && sqlerr.Ended(ctx): // in the midst of another attempt
				return outOfTime(parent, false, s.named(met), met)
			default:
				return outOfTime(parent, false, is, err)
			}
		default:
			if !this.doubt {
				return err
			}
		}
		if !pause(ctx, n) {
			if is == sqlerr.Unavailable && met != nil { // a connection that a wait has cost
				err = met
			}
			return outOfTime(parent, this.doubt, s.named(err), err)
		}
		this.outright, this.own, this.assumeNew = false, false, false
	}
}

// outOfTime says how a retry ends whose time has run out.
func outOfTime(parent context.Context, doubt bool, is sqlerr.Class, err error) error {
	switch {
	case doubt:
		return &ended{errors.Join(dblock.ErrOutcomeUnknown, context.Cause(parent)), err}
	case parent.Err() != nil:
		return &ended{context.Cause(parent), err}
	}
	return &ended{sqlerr.Public(is), err}
}

// pause waits before the next attempt, with full jitter, so that those who collided don't meet
// again. False: there is no time left for one.
func pause(ctx context.Context, attempt int) bool {
	return pace.Sleep(ctx, rand.N(min(longestStep, firstPause<<min(attempt, 10)))) == nil
}

// named returns the class that a caller is told of. A lock that did not come in time is Busy, also
// if the statement was repeated for it. A key that another order keeps taking is a conflict.
func (s *Store) named(err error) sqlerr.Class {
	switch is := s.classify(err); {
	case is != sqlerr.Retryable && is != sqlerr.Duplicate:
		return is
	case s.driver.IsLocked(err):
		return sqlerr.Busy
	}
	return sqlerr.Retryable
}

// explain puts an error of the driver into this package's words. What is in them already, and
// what the queue says, stays as it is.
func (s *Store) explain(err error, what string) error {
	var end *ended
	switch {
	case errors.As(err, &end) && errors.Is(end.as, dblock.ErrOutcomeUnknown):
		return fmt.Errorf("%w: %s: no answer within %v; send the same key again to learn it: %w",
			end.as, what, s.o.Timeout, end.cause)
	case errors.As(err, &end):
		return fmt.Errorf("%w: %s: nothing was written: %w", end.as, what, end.cause)
	}
	switch is := s.named(err); is {
	case sqlerr.Retryable, sqlerr.Busy, sqlerr.NoSchema, sqlerr.Overloaded:
		return sqlerr.Wrap(is, err, what, "")
	case sqlerr.BadInput:
		if errors.Is(err, driver.ErrHookEnded) {
			return fmt.Errorf("%w: %w: %s: send the same key again to learn whether it was committed: %w",
				ErrRejected, dblock.ErrOutcomeUnknown, what, err)
		}
		return fmt.Errorf("%w: %s: nothing was written: %w", ErrRejected, what, err)
	default:
		return err
	}
}
