package sqlerr

import (
	"errors"

	"github.com/dblock-go/dblock"
)

// IsFinal reports that it is wrong to run a transaction again, whatever else its error says: the
// lock that it was under is gone, or it may have been written.
func IsFinal(err error) bool {
	return errors.Is(err, dblock.ErrFenced) || errors.Is(err, dblock.ErrLost) || errors.Is(err, dblock.ErrOutcomeUnknown)
}
