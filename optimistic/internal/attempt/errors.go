package attempt

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/ctxerr"
)

// Errors of package optimistic, which exports and documents them.
var (
	ErrStale      = errors.New("optimistic: the row has changed since it was read")
	ErrNotFound   = errors.New("optimistic: no such row")
	ErrSuppressed = errors.New("optimistic: the server suppressed the write")
	ErrTooMany    = errors.New("optimistic: more than one row was hit")
)

// Counted returns a conflict with the number of attempts in its *optimistic.StaleError; any other
// error as it is. Package optimistic sets it at initialization: the type is public, so that it
// cannot be in this package.
var Counted func(err error, attempts int) error

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

// ofCallersTx adds that the caller has to repeat the transaction.
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

// isServers reports whether err is a conflict of the server's that is not one of dblock's errors.
func (p *Plan) isServers(err error) bool {
	return !errors.Is(err, dblock.ErrConflict) && p.IsConflict != nil && p.IsConflict(err)
}

// waitEnded is the error of a context that ended when something was yet to be tried. It matches the
// context's error, its cause, and the last conflict, which is nil if there was no attempt.
func waitEnded(ctx context.Context, attempts int, last error) error {
	if last == nil {
		return fmt.Errorf("optimistic: the context ended before the first attempt, nothing was written: %w", ctxerr.Of(ctx))
	}
	return fmt.Errorf("optimistic: the context ended before it could be repeated (it was tried %s), nothing was written: %w: %w",
		times(attempts), ctxerr.Of(ctx), Counted(last, attempts))
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// isDefinite reports whether an error says by itself what became of a statement.
func isDefinite(err error) bool {
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

// stop does not unwrap: until Run returns its error, it must match nothing.
type stop struct{ err error }

func (e *stop) Error() string { return fmt.Sprint(e.err) }
