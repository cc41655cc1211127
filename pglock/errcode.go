package pglock

import (
	"errors"

	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// batchLocked is an error of a batch that met a locked row. The batch is split to find the ask for
// that row.
type batchLocked struct{ error }

func (e *batchLocked) Unwrap() error { return e.error }

// ofBatch is the error of a statement for a batch of that size.
func ofBatch(err error, size int) error {
	if size > 1 && postgres.IsLocked(err) {
		return &batchLocked{err}
	}
	return err
}

// Classify returns the class of an error.
func (*leaseDriver) Classify(err error) sqlerr.Class {
	if locked := (*batchLocked)(nil); errors.As(err, &locked) {
		return sqlerr.BadInput
	}
	return postgres.ClassifyOwn(err)
}
