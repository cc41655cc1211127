package attempt

import "errors"

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
