package pginventory

import (
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// keyTimeout bounds, in milliseconds, how long the stock stays locked for an order that another
// transaction is writing. A batch that is sold at once writes its orders first and then takes the
// stock: it may be waiting for us. The order goes on to wait for its key without the stock, so this
// need not be long.
const keyTimeout = "5"

// awaitTimeout bounds AwaitKeys in milliseconds.
const awaitTimeout = "1000"

// orKeyOpen is for statements that wait under keyTimeout. If it was a longer wait for the stock
// that ended, the order finds its key free and waits for the stock next.
func orKeyOpen(err error) error {
	if postgres.IsLocked(err) {
		return &driver.KeyOpen{Err: err}
	}
	return err
}

// Failure returns the class of an error.
func (d *database) Failure(err error) driver.Failure {
	locked := postgres.IsLocked(err)
	f := driver.Failure{
		Class: postgres.ClassifyOwn(err), Locked: locked, Dead: postgres.IsDead(err), Own: locked && !postgres.IsFromFunction(err),
	}
	if driver.IsKeyOpen(err) {
		f.Class = sqlerr.Duplicate
	}
	return f
}
