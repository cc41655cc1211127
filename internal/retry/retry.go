// Package retry runs a transaction until it meets no conflict with others. It knows no database:
// what runs a transaction, and which of its errors are conflicts, is its driver's.
package retry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/callback"
	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

const (
	defaultAttempts = 10
	maxAttempts     = 1_000

	// A transaction that conflicts has met at least one other. The first pause is about as long as
	// a short transaction, and each is twice as long as the one before: fewer transactions then
	// meet.
	firstPause   = 5 * time.Millisecond
	longestPause = 500 * time.Millisecond
)

// Options say how often a transaction is run, and what is called before a repetition.
type Options struct {
	Attempts int
	OnRetry  func(attempt int, err error)
}

// WithDefaults applies the defaults and refuses what makes no sense.
func (o Options) WithDefaults() (Options, error) {
	if o.Attempts < 0 || o.Attempts > maxAttempts {
		return o, &dblock.InvalidError{
			Field: "TxOptions.Attempts", Reason: fmt.Sprintf("%d is not within 1 to %d, nor 0 for %d", o.Attempts, maxAttempts, defaultAttempts),
		}
	}
	o.Attempts = cmp.Or(o.Attempts, defaultAttempts)
	return o, nil
}

// Run calls once, which runs a whole transaction and leaves nothing open, until its error is nil or
// none of a conflict, it was called as often as the options say, or ctx has ended. once may not
// return a conflict where something may have been written.
func Run(ctx context.Context, o Options, isConflict func(error) bool, once func() error) error {
	for attempt := 1; ; attempt++ {
		err := callback.Sound(once())
		var within *gaveUp // a RunTx in this one: that was enough
		switch {
		case err == nil, sqlerr.IsFinal(err), !isConflict(err), errors.As(err, &within):
			return err
		case attempt == o.Attempts:
			return &gaveUp{attempt, err}
		}
		if o.OnRetry != nil {
			callback.Safely(nil, func() { o.OnRetry(attempt, err) })
		}
		if ended := pace.Sleep(ctx, pause(attempt)); ended != nil {
			return fmt.Errorf("dblock: the context ended before a transaction that met a conflict was run again (it was run %s), "+
				"nothing was written: %w: %w", times(attempt), ended, err)
		}
	}
}

// gaveUp says that each attempt met a conflict.
type gaveUp struct {
	attempts int
	last     error
}

func (e *gaveUp) Error() string {
	return fmt.Sprintf("%v: it was run %s and rolled back, nothing was written: run it again later, or with more Attempts: %v",
		dblock.ErrConflict, times(e.attempts), e.last)
}

// Is makes errors.Is(err, dblock.ErrConflict) true, whatever the last conflict was.
func (e *gaveUp) Is(target error) bool { return target == dblock.ErrConflict }

func (e *gaveUp) Unwrap() error { return e.last }

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// pause is how long to wait after so many attempts, give or take a half: transactions that met must
// not meet again.
func pause(attempts int) time.Duration {
	return pace.Jitter(min(firstPause<<min(attempts-1, 20), longestPause))
}
