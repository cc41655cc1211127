package optimistic

import (
	"context"

	"github.com/dblock-go/dblock/optimistic/internal/attempt"
)

// Do calls fn until its error is not a conflict, or as often as Attempts says, with pauses in
// between. attempt is 1 the first time. fn reads, changes and writes anew each time; it must leave
// nothing written if it returns a conflict: begin a transaction in it and roll that back, or let
// one statement do all. Do of a driver hands one out.
//
// A conflict is ErrStale, or dblock.ErrConflict: the server's, as the packages of dblock report it.
// To have a server's deadlocks tried again use RetryIf(pglock.Retryable), or Do of a driver. An
// error that matches dblock.ErrOutcomeUnknown, dblock.ErrFenced or dblock.ErrLost is never a
// conflict, whatever else it matches, and neither is a context's error.
//
// It can't see a transaction of the caller's: within one, at REPEATABLE READ or above, no attempt
// but the first can succeed. Repeat such a transaction as a whole, or use Do of a driver, which
// sees it.
//
// Errors: fn's own, as it is, if that is no conflict. When all attempts have met one: a
// *StaleError with the number of Attempts, or an error that matches dblock.ErrConflict; it wraps
// the last. If ctx ended in between: an error that matches its cause and the last conflict. An
// *dblock.InvalidError for an option, before fn is called. A panic of fn's passes through.
func Do(ctx context.Context, fn func(ctx context.Context, attempt int) error, opts ...Option) error {
	p, err := planOf(opts)
	if err != nil {
		return err
	}
	if fn == nil {
		return invalid("fn", "it is nil")
	}
	return p.Run(ctx, fn)
}

// planOf refuses what only a driver can do.
func planOf(opts []Option) (attempt.Plan, error) {
	p, err := attempt.New(opts)
	if err == nil && p.Lock != nil {
		err = invalid("EscalateAfter", "a lock needs a transaction: use Update or Do of the driver that the option is from")
	}
	return p, err
}
