package engine

import "time"

// Package inventory sets these at initialization, for its drivers alone: they need values of its
// types that no other caller is to make, and this package can't name those types.
var (
	// NewStore makes a *inventory.Store of inventory.Options. Once the options are found valid it calls
	// open for the engine.
	NewStore func(options any, open func() (Engine, error)) (store any, err error)

	// Granted returns what a plan grants, key by key, as []inventory.Reservation. began is when it was
	// sent.
	Granted func(plan Plan, began time.Time) (reservations any)
)
