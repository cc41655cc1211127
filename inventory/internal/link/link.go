// Package link passes on what package inventory does for its drivers and does not export.
package link

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// functions is what package inventory has put into driver.Inventory.
type functions interface {
	NewStore(o inventory.Options, open func() (driver.Driver, error)) (*inventory.Store, error)
	ReserveIn(ctx context.Context, s *inventory.Store, tx driver.CallerTx, r inventory.Request) (inventory.Reservation, error)
	ReserveAllIn(ctx context.Context, s *inventory.Store, tx driver.CallerTx, c inventory.Cart) (inventory.Reservation, error)
	Granted(plan driver.Plan, began time.Time) []inventory.Reservation
}

// of panics at the start of each program if package inventory lacks one of the methods.
var of = driver.Inventory.(functions)

// NewStore makes a Store on the driver that open returns. It calls open once the options are found
// valid.
func NewStore(o inventory.Options, open func() (driver.Driver, error)) (*inventory.Store, error) {
	return of.NewStore(o, open)
}

// ReserveIn is Store.Reserve in a transaction of the caller's.
func ReserveIn(ctx context.Context, s *inventory.Store, tx driver.CallerTx, r inventory.Request) (inventory.Reservation, error) {
	return of.ReserveIn(ctx, s, tx, r)
}

// ReserveAllIn is Store.ReserveAll in a transaction of the caller's.
func ReserveAllIn(ctx context.Context, s *inventory.Store, tx driver.CallerTx, c inventory.Cart) (inventory.Reservation, error) {
	return of.ReserveAllIn(ctx, s, tx, c)
}

// Granted returns what a plan grants, key by key, for a hook. began is when the plan was sent.
func Granted(plan driver.Plan, began time.Time) []inventory.Reservation {
	return of.Granted(plan, began)
}
