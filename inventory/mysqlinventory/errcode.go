package mysqlinventory

import (
	"errors"

	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// Classify tells what an error means. A call that waited too long for the stock tries again: the
// server's bound has ended, not the caller's.
func (d *database) Classify(err error) sqlerr.Class {
	var wait *bounded
	switch {
	case errors.As(err, &wait):
		return sqlerr.Busy
	case errors.Is(err, errKeyTaken), driver.IsKeyOpen(err):
		return sqlerr.Duplicate
	case mysql.IsLocked(err):
		return sqlerr.Retryable
	}
	return mysql.ClassifyOwn(err)
}

// IsLocked reports that a lock was not had in time.
func (d *database) IsLocked(err error) bool { return mysql.IsLocked(err) }

// errKeyTaken says that somebody else has recorded an order of the same key.
var errKeyTaken = errors.New("mysqlinventory: the key was recorded after the transaction first read")

// orKeyOpen is for a statement that writes orders, and waits for nothing but their keys.
func orKeyOpen(err error) error {
	if isRowLocked(err) {
		return &driver.KeyOpen{Err: err}
	}
	return err
}

// isRowLocked is mysql.IsLocked for rows. It may have been a table if the statement waits for both.
func isRowLocked(err error) bool { return mysql.IsLocked(err) && !sqlerr.IsTableLocked(err) }

// bounded says that a caller's transaction waited for a row for as long as it may, which is the caller's bound, or a statement that
// waits briefly.
type bounded struct{ error }

func (e *bounded) Unwrap() error { return e.error }

// Waited reports whether a statement of dblock's own waited for a lock. The server's error does not name
// a trigger.
func (d *database) Waited(err error) bool { return errors.As(err, new(*bounded)) }
