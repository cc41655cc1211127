// Package ctxerr makes the error of a call out of the end of its context.
package ctxerr

import (
	"context"
	"reflect"
)

// Of is nil while ctx lives. Afterwards it matches the error of ctx, context.Canceled or
// context.DeadlineExceeded, and the cause itself. It does not match what the cause wraps: that is
// often the error of another call, and says nothing of what this one has written.
func Of(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || cause.Error() == err.Error() {
		return err
	}
	return &caused{err, cause}
}

type caused struct{ err, cause error }

func (c *caused) Error() string { return c.err.Error() + ": " + c.cause.Error() }
func (c *caused) Unwrap() error { return c.err }

func (c *caused) Is(target error) bool {
	return reflect.TypeOf(c.cause).Comparable() && c.cause == target
}
