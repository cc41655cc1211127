package attempt

import (
	"errors"
	"fmt"

	"github.com/dblock-go/dblock"
)

// exhausted is the error of the last attempt that there was.
func (p *Plan) exhausted(err error, attempts int) error {
	switch {
	case errors.Is(err, ErrStale):
		return Counted(err, attempts)
	case p.isServers(err):
		return fmt.Errorf("%w: it was tried %s, nothing was written: repeat it later, or allow more Attempts: %w",
			dblock.ErrConflict, times(attempts), err)
	default: // it says itself what it is
		return fmt.Errorf("optimistic: it was tried %s: %w", times(attempts), err)
	}
}

// ofCallersTx says who has to repeat it.
func (p *Plan) ofCallersTx(err error) error {
	const advice = "the transaction is the caller's, or may be, and was not begun again: roll it back, and repeat all of it in a new one"
	switch {
	case errors.Is(err, ErrStale):
		return fmt.Errorf("%w (%s)", Counted(err, 1), advice)
	case p.isServers(err):
		return fmt.Errorf("%w: %s: %w", dblock.ErrConflict, advice, err)
	default:
		return err
	}
}

// isServers tells a conflict of the server's that does not say so in dblock's words.
func (p *Plan) isServers(err error) bool {
	return !errors.Is(err, dblock.ErrConflict) && p.IsConflict != nil && p.IsConflict(err)
}

// endedError is for a context that ended when something was yet to be tried.
type endedError struct {
	after        int
	cause, ended error
	last         error // nil: there was no attempt
}

func (e *endedError) Error() string {
	if e.last == nil {
		return fmt.Sprintf("optimistic: the context ended before the first attempt, nothing was written: %v", e.cause)
	}
	return fmt.Sprintf("optimistic: the context ended before it could be repeated (it was tried %s), nothing was written: %v: %v",
		times(e.after), e.cause, e.last)
}

// Unwrap has it match the context's error, its cause, and the last conflict.
func (e *endedError) Unwrap() []error {
	if e.last == nil {
		return []error{e.cause, e.ended}
	}
	return []error{e.cause, e.ended, e.last}
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
