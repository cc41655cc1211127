package inventory

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/batch"
	"github.com/dblock-go/dblock/internal/ctxerr"
	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

const (
	firstPause  = 5 * time.Millisecond   // before the second attempt, at most.
	longestStep = 250 * time.Millisecond // pauses double up to this.
	sharedTries = 4                      // after conflicts that one of a batch may cause.
	awaitTries  = 8                      // after a key was taken, of an order that has waited for its key.
	dialTries   = 3                      // while nothing was ever sent.
	hookRests   = 2                      // times as long as an attempt whose hook waited, before the next.
	mostDead    = 100                    // connections of a pool that may be dead, after which such tries count, too
)

// attempt is how a statement is tried.
type attempt struct {
	way        way
	locks      locks
	lane       string // the lane of the lock that it waits for: see batch.Answer
	inOrder    bool   // it waits for the stock of all SKUs
	rowless    bool   // it passes over locked rows: only a locked table makes it wait
	conflicts  conflicts
	unresolved bool // one before it may have been committed, or may yet be
}

// way is how a batch of orders is decided. Each way but the first decides less, and takes less
// time.
type way int

const (
	lockAll    way = iota // in a transaction that locks the stock and reads what is recorded.
	assumeNew             // the same, without reading what is recorded.
	lockBucket            // the same, with this process's allotment alone locked.
	sellNew               // one statement that sells the orders that are new and within their limit.
	sellAll               // one statement that sells all orders or none.
)

// locks is for which locked rows an attempt waits.
type locks int

const (
	waitForLane locks = iota // for those of one lane, or of one SKU, as long as there is time
	waitBriefly              // the same, for no longer than others usually have them
	lockNone                 // for none
)

// conflicts is what conflicts with other transactions make of an attempt.
type conflicts int

const (
	ofOne    conflicts = iota // it is repeated as long as there is time
	ofBatch                   // it holds others up, or may go on apart: it ends after a few
	awaitKey                  // it begins with a wait for the order's key, and is repeated
)

// ended is how a retry ended that got no answer from the database.
type ended struct {
	as    error // what the caller gets: one of dblock's errors, or a context's
	cause error // what the driver said last
}

func (e *ended) Error() string   { return e.cause.Error() }
func (e *ended) Unwrap() []error { return []error{e.as, e.cause} }

// ranOut reports that a retry ended because others were in the way for all of its time.
func ranOut(err error) bool {
	var end *ended
	return errors.As(err, &end) && sqlerr.IsContended(end.as)
}

// retrier repeats statements, and says what their errors mean.
type retrier struct {
	driver  driver.Driver
	timeout time.Duration // of all attempts together
	slots   chan struct{} // of statements that run; nil: there may be any number
}

// newRetrier returns one that leaves a connection of the pool to a hook, for what it reads there.
func newRetrier(d driver.Driver, timeout time.Duration) *retrier {
	r := &retrier{driver: d, timeout: timeout}
	if caps := d.Caps(); caps.Hooked && caps.Connections > 0 {
		r.slots = make(chan struct{}, max(1, caps.Connections-1))
	}
	return r
}

// slotKey is for the retrier whose slot a statement has. A hook is called with that context: what
// it reads by its own Store uses the connection that is left.
type slotKey struct{}

// once makes one attempt.
func (r *retrier) once(ctx context.Context, this attempt, what func(context.Context, attempt) error) error {
	if r.slots != nil && ctx.Value(slotKey{}) != r {
		select {
		case r.slots <- struct{}{}:
			defer func() { <-r.slots }()
		case <-ctx.Done():
			return sqlerr.Unwritten(ctx.Err())
		}
		ctx = context.WithValue(ctx, slotKey{}, r)
	}
	return what(ctx, this)
}

// do runs what until it says yes or no. An attempt whose connection was lost may have been
// committed: from then on only an attempt that completes can end it well, as it finds what was
// recorded.
func (r *retrier) do(parent context.Context, this attempt, what func(context.Context, attempt) error) error {
	ctx, cancel := context.WithTimeout(parent, r.timeout)
	defer cancel()
	unreachable, dead := 0, 0
	var met error // the last conflict, or else the first lock that did not come in time
	for n := 0; ; n++ {
		began := time.Now()
		err := r.once(ctx, this, what)
		if err == nil {
			return nil
		}
		is := r.failure(err)
		if r.named(err) == sqlerr.Retryable || met == nil && is.Locked {
			met = err
		}
		if end := r.blocked(ctx, err, this, n); end != nil {
			return end
		}
		switch is.Class {
		case sqlerr.Retryable, sqlerr.Duplicate:
		case sqlerr.Unresolved:
			this.unresolved, this.locks = true, waitForLane
			batch.Yield(ctx) // for as long as it takes
		case sqlerr.Unavailable:
			if is.Dead && dead < mostDead {
				dead++ // after a restart of the server all idle connections of a pool are
				break
			}
			unreachable++
			if !this.unresolved && unreachable == dialTries {
				return &ended{sqlerr.Public(is.Class), err}
			}
		case sqlerr.Busy:
			if this.rowless {
				batch.Yield(ctx) // other statements may not need that table
			}
			if !this.unresolved && !(is.Locked && this.waitsAgain(ctx)) {
				if met != nil && sqlerr.Ended(ctx) { // in the midst of another attempt
					return outOfTime(parent, false, r.named(met), met)
				}
				return outOfTime(parent, false, is.Class, err)
			}
		default:
			if !this.unresolved {
				return err
			}
		}
		if isHookBusy(err) {
			_ = pace.Sleep(ctx, hookRests*time.Since(began)) // others have the stock meanwhile
		}
		if !pause(ctx, max(0, n-dead)) {
			if is.Class == sqlerr.Unavailable && met != nil { // a connection that a wait has cost
				err = met
			}
			return outOfTime(parent, this.unresolved, r.named(err), err)
		}
		this.way = lockAll
	}
}

// leastWait is how long an attempt has to be able to wait for a lock.
const leastWait = 100 * time.Millisecond

// waitsAgain reports that a lock is waited for again that did not come in time: the server gives up
// before the caller does. A change leaves its queue then, and comes back.
func (a attempt) waitsAgain(ctx context.Context) bool {
	deadline, _ := ctx.Deadline() // do sets one
	return (a.conflicts == ofOne || a.lane != "" || a.rowless) && time.Until(deadline) >= leastWait
}

// blocked returns the error of an attempt that is not to be repeated, as it holds others up, or as
// it is not its own key that it meets. n attempts were made before it.
func (r *retrier) blocked(ctx context.Context, err error, this attempt, n int) error {
	is := r.failure(err)
	conflict := is.Class == sqlerr.Retryable || is.Class == sqlerr.Duplicate
	switch {
	case this.unresolved:
	case this.conflicts == ofBatch && isHookBusy(err) && !sqlerr.Ended(ctx):
		return &blockedError{err, true}
	case conflict && sqlerr.IsTableLocked(err): // for all of a batch alike
	case (conflict || is.Class == sqlerr.Busy) && r.blocks(ctx, err, this):
		return &blockedError{err, false}
	case conflict && this.conflicts == ofBatch && n+1 >= sharedTries,
		is.Class == sqlerr.Busy && this.conflicts == ofBatch && !is.Own && !sqlerr.Ended(ctx):
		return &blockedError{err, true}
	case is.Class == sqlerr.Duplicate && this.conflicts == awaitKey && n+1 >= awaitTries && !driver.IsKeyOpen(err):
		return &driver.HookError{Err: err} // it is not the order's own key, which would be found recorded
	}
	return nil
}

// blocks reports that an attempt met a lock for which it is not to wait. A hook that waits is not
// in the way of others: see blocked.
func (r *retrier) blocks(ctx context.Context, err error, this attempt) bool {
	if driver.IsKeyOpen(err) {
		return this.conflicts != awaitKey && !sqlerr.Ended(ctx)
	}
	return this.locks != waitForLane && r.class(err) == sqlerr.Busy && !isHookBusy(err) && !sqlerr.Ended(ctx)
}

// outOfTime says how a retry ends whose time has run out.
func outOfTime(parent context.Context, unresolved bool, is sqlerr.Class, err error) error {
	switch {
	case unresolved:
		return &ended{errors.Join(dblock.ErrOutcomeUnknown, ctxerr.Of(parent)), err}
	case parent.Err() != nil:
		return &ended{ctxerr.Of(parent), err}
	}
	return &ended{sqlerr.Public(is), err}
}

// pause waits before the next attempt, with full jitter, so that attempts that collided don't meet
// again. False: there is no time left for one.
func pause(ctx context.Context, attempt int) bool {
	return pace.Sleep(ctx, rand.N(min(longestStep, firstPause<<min(attempt, 10)))) == nil
}

// failure returns the class of an error, of the driver or of a hook.
func (r *retrier) failure(err error) driver.Failure {
	f := r.driver.Failure(err)
	var hook *driver.HookError
	if errors.As(err, &hook) {
		f.Class = sqlerr.BadInput
	}
	return f
}

func (r *retrier) class(err error) sqlerr.Class { return r.failure(err).Class }

// classOfBatch returns the class of an error to a batch. One that ran out of time is not divided,
// nor one whose hook has ended the transaction: an order of it may be committed, and would be found
// replayed.
func (r *retrier) classOfBatch(err error) sqlerr.Class {
	var blocked *blockedError
	var end *ended
	switch {
	case errors.As(err, &blocked) && !blocked.contested:
		return sqlerr.BadInput
	case errors.As(err, &end), errors.Is(err, driver.ErrHookEnded):
		return sqlerr.Unresolved
	}
	return r.class(err)
}

// named returns the class that a caller gets. A lock that did not come in time is Busy, also
// if the statement was repeated for it. A key that another order keeps taking is a conflict.
func (r *retrier) named(err error) sqlerr.Class {
	switch is := r.failure(err); {
	case is.Class != sqlerr.Retryable && is.Class != sqlerr.Duplicate:
		return is.Class
	case is.Locked:
		return sqlerr.Busy
	}
	return sqlerr.Retryable
}

// explain puts an error of the driver into this package's words. What is in them already, and
// what the queue says, stays as it is.
func (r *retrier) explain(err error, what string) error {
	var end *ended
	switch {
	case errors.As(err, &end) && errors.Is(end.as, dblock.ErrOutcomeUnknown):
		return fmt.Errorf("%w: %s: no answer within %v; send the same key again to learn it: %w",
			end.as, what, r.timeout, end.cause)
	case errors.As(err, &end):
		return fmt.Errorf("%w: %s: nothing was written: %w", end.as, what, end.cause)
	}
	switch is := r.named(err); is {
	case sqlerr.Retryable, sqlerr.Busy, sqlerr.NoSchema, sqlerr.Overloaded, sqlerr.NotPermitted:
		return sqlerr.Wrap(is, err, what, "")
	case sqlerr.BadInput:
		if errors.Is(err, driver.ErrHookEnded) {
			return fmt.Errorf("%w: %w: %s: send the same key again to learn whether it was committed: %w",
				ErrRejected, dblock.ErrOutcomeUnknown, what, err)
		}
		return fmt.Errorf("%w: %s: nothing was written: %w", ErrRejected, what, err)
	}
	return err
}
