package sqlerr

import (
	"errors"
	"fmt"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/schema"
)

// Public returns the error of package dblock that a class stands for. It returns nil for Duplicate,
// BadInput and Unclassified: only the caller knows what those mean.
func Public(c Class) error {
	switch c {
	case Retryable:
		return dblock.ErrConflict
	case Busy:
		return dblock.ErrBusy
	case Unavailable:
		return dblock.ErrUnavailable
	case Unresolved:
		return dblock.ErrOutcomeUnknown
	case NoSchema:
		return &dblock.SchemaError{Want: schema.Version}
	case Overloaded:
		return dblock.ErrOverloaded
	case NotPermitted:
		return dblock.ErrPermission
	}
	return nil
}

// Wrap returns err in the words of package dblock: it matches the public error of its class, if
// that has one. what says what was done, and to which key. unresolved says what to do if the
// outcome is unknown; of all other classes with a public error Wrap says that nothing was written.
func Wrap(c Class, err error, what, unresolved string) error {
	public := Public(c)
	switch {
	case public == nil:
		return fmt.Errorf("dblock: %s: %w", what, err)
	case c == Unresolved:
		return fmt.Errorf("%w: %s: %s: %w", public, what, unresolved, err)
	case c == Overloaded:
		return fmt.Errorf("%w: %s: the server can hold no more locks (Postgres: max_locks_per_transaction), "+
			"nothing was written: %w", public, what, err)
	}
	return fmt.Errorf("%w: %s: nothing was written: %w", public, what, err)
}

// Harmless returns the class for a caller that is not affected by what the server may have done:
// Unavailable for Unresolved, and c for any other.
func (c Class) Harmless() Class {
	if c == Unresolved {
		return Unavailable
	}
	return c
}

// OfHost returns the class for a statement on tables of the host's: Unclassified for NoSchema, as
// the table that is missing is none of dblock's, and c for any other.
func (c Class) OfHost() Class {
	if c == NoSchema {
		return Unclassified
	}
	return c
}

// IsContended reports that others were in the way and nothing was written: the same call may
// succeed later.
func IsContended(err error) bool {
	return (errors.Is(err, dblock.ErrBusy) || errors.Is(err, dblock.ErrConflict)) && !errors.Is(err, dblock.ErrOutcomeUnknown)
}
