package pginventory

import (
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// keyTimeout bounds, in milliseconds, how long the stock stays locked for an order that somebody
// else is writing at this moment. A batch that is sold together writes its orders first and then
// takes the stock: it may be waiting for us.
// The order goes on to wait for its key without the stock, so this need not be long.
const keyTimeout = "5"

// awaitTimeout bounds AwaitKeys in milliseconds.
const awaitTimeout = "1000"

// orKeyOpen is for statements that wait under keyTimeout. If it was a longer wait for the stock that ended, the order finds its key free
// and waits for the stock next.
func orKeyOpen(err error) error {
	if postgres.IsLocked(err) {
		return &driver.KeyOpen{Err: err}
	}
	return err
}

// Classify tells what an error means.
func (d *database) Classify(err error) sqlerr.Class {
	if driver.IsKeyOpen(err) {
		return sqlerr.Duplicate
	}
	return postgres.ClassifyOwn(err)
}

// Waited reports whether a statement of dblock's own waited for a lock.
func (d *database) Waited(err error) bool {
	return postgres.IsLocked(err) && !postgres.IsFromFunction(err)
}

// IsLocked reports that a lock was not had in time.
func (d *database) IsLocked(err error) bool { return postgres.IsLocked(err) }
