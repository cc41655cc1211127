package mysqllock

import (
	"errors"

	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// errLocked says that another transaction has held a row for too long. It is Busy.
var errLocked = errors.New("dblock: the lease is locked by a transaction")

// partial is an error after which a part of a batch stands.
type partial struct{ error }

func (e *partial) Unwrap() error { return e.error }

// half is the error of a batch, a part of which may have been written before.
func half(err error, written bool) error {
	if err == nil || !written {
		return err
	}
	return &partial{err}
}

// batchLocked is an error of a batch that met a locked row and wrote nothing. The batch is split to
// find the one with that row.
type batchLocked struct{ error }

func (e *batchLocked) Unwrap() error { return e.error }

// ofBatch is the error of a statement for a batch of that size.
func ofBatch(err error, size int) error {
	if size > 1 && mysql.IsLocked(err) {
		return &batchLocked{err}
	}
	return err
}

// Classify returns the class of an error.
func (*conns) Classify(err error) sqlerr.Class {
	var part *partial
	var locked *batchLocked
	switch {
	case errors.As(err, &locked):
		return sqlerr.BadInput
	case errors.As(err, &part):
		return sqlerr.Unresolved
	case errors.Is(err, errLocked):
		return sqlerr.Busy
	case errors.Is(err, mysql.ErrTooLong):
		return sqlerr.BadInput
	default:
		return mysql.ClassifyOwn(err)
	}
}
