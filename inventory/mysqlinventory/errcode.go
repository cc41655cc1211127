package mysqlinventory

import (
	"errors"

	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// Failure returns the class of an error. A call that waited too long for the stock tries again: the
// server's bound has ended, not the caller's. The server's error does not name a trigger.
func (d *database) Failure(err error) driver.Failure {
	f := driver.Failure{
		Class: mysql.ClassifyOwn(err), Locked: mysql.IsLocked(err), Dead: mysql.IsDead(err), Own: errors.As(err, new(*bounded)),
	}
	switch {
	case f.Own:
		f.Class = sqlerr.Busy
	case errors.Is(err, errKeyTaken), driver.IsKeyOpen(err):
		f.Class = sqlerr.Duplicate
	case f.Locked:
		f.Class = sqlerr.Retryable
	}
	return f
}

// errKeyTaken says that another transaction has recorded an order of the same key.
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

// bounded says that a caller's transaction waited for a row for as long as it may, which is the
// caller's bound, or a statement that waits briefly.
type bounded struct{ error }

func (e *bounded) Unwrap() error { return e.error }
