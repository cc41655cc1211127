package fault

import (
	"context"
	"errors"

	"github.com/dblock-go/dblock"
)

// IsFinal tells that it is wrong to run a transaction again, whatever else its error says: the lock that it was under is
// gone, or it may have been written.
func IsFinal(err error) bool {
	return errors.Is(err, dblock.ErrFenced) || errors.Is(err, dblock.ErrLost) || errors.Is(err, dblock.ErrOutcomeUnknown)
}

// MayBeOnes tells that one request of a batch may have caused an error of that class: the server sent it, nothing was written, and
// the connection lives on. Of Poison that is certain. The other classes may concern all requests, or the server.
func MayBeOnes(err error, is Fault) bool {
	switch is {
	case Poison:
		return true
	case Retry, Duplicate, Busy, NoSchema, Full, Other:
		return !IsFinal(err) && !errors.Is(err, dblock.ErrClosed) && !errors.Is(err, dblock.ErrInvalid) &&
			!errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled)
	}
	return false
}
