package pglock

import (
	"errors"

	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/internal/pgfault"
)

// batchLocked is an error of a batch that met a locked row. The batch is split to find the ask for that row.
type batchLocked struct{ error }

func (e *batchLocked) Unwrap() error { return e.error }

// ofBatch is the error of a statement for a batch of that size.
func ofBatch(err error, size int) error {
	if size > 1 && pgfault.IsLocked(err) {
		return &batchLocked{err}
	}
	return err
}

// Fault tells what an error means.
func (*engine) Fault(err error) fault.Fault {
	if locked := (*batchLocked)(nil); errors.As(err, &locked) {
		return fault.Poison
	}
	return pgfault.OfOwn(err)
}
