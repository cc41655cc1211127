package driver

import (
	"context"
	"errors"

	"github.com/dblock-go/dblock/internal/sqlerr"
)

// lookAgain is the advice about a write whose outcome is unknown.
const lookAgain = "no answer came: read the row again to see whether it is written"

// Wrap puts the error of a Table's own statement into the words of package dblock.
func Wrap(is sqlerr.Class, what string, err error) error {
	is = is.OfHost()
	if is == sqlerr.Retryable {
		what += ": roll back, read it again and repeat the change"
	}
	return sqlerr.Wrap(is, err, what, lookAgain)
}

// WrapCallers puts the error of a statement of the caller's into the words of package dblock if the
// connection is to blame. Any other may be the caller's own.
func WrapCallers(ctx context.Context, is sqlerr.Class, err error) error {
	const what = "a statement that writes"
	switch is {
	case sqlerr.Unavailable:
		return sqlerr.Wrap(is, err, what, "")
	case sqlerr.Unresolved:
		return sqlerr.Wrap(is, errors.Join(context.Cause(ctx), err), what, lookAgain)
	}
	return err
}
