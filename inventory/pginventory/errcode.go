package pginventory

import (
	"errors"

	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/internal/pgfault"
)

// keyTimeout bounds, in milliseconds, how long the stock stays locked for an order that somebody
// else is writing at this moment. A batch that is sold together writes its orders first and then
// takes the stock: it may be waiting for us.
const keyTimeout = "20"

// keyTaken says that somebody else was writing an order of the same key.
type keyTaken struct{ error }

func (e *keyTaken) Unwrap() error { return e.error }

// orKeyTaken is for statements that wait under keyTimeout. (Where it was a longer wait that ended,
// for the stock, the next attempt finds out.)
func orKeyTaken(err error) error {
	if pgfault.IsLocked(err) {
		return &keyTaken{err}
	}
	return err
}

// Fault tells what an error means.
func (d *database) Fault(err error) fault.Fault {
	var taken *keyTaken
	if errors.As(err, &taken) {
		return fault.Duplicate
	}
	return pgfault.Of(err)
}
