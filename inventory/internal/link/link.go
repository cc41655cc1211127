// Package link passes on what package inventory does for its drivers and does not export.
package link

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// Functions is what package inventory has put into driver.Inventory.
type Functions interface {
	// NewStore makes a Store on the driver that open returns. It calls open once the options are
	// found valid.
	NewStore(o inventory.Options, open func() (driver.Driver, error)) (*inventory.Store, error)

	// ReserveIn and ReserveAllIn are Store.Reserve and ReserveAll in a transaction of the caller's.
	ReserveIn(ctx context.Context, s *inventory.Store, tx driver.CallerTx, r inventory.Request) (inventory.Reservation, error)
	ReserveAllIn(ctx context.Context, s *inventory.Store, tx driver.CallerTx, c inventory.Cart) (inventory.Reservation, error)

	// Granted returns what a plan grants, key by key, for a hook. began is when the plan was sent.
	Granted(plan driver.Plan, began time.Time) []inventory.Reservation
}

// Inventory panics at the start of each program if package inventory lacks one of the methods.
var Inventory = driver.Inventory.(Functions)
