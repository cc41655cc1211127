package inventory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

func init() { driver.Inventory = functions{} }

// functions are those that drivers call through package link.
type functions struct{}

// NewStore checks the options before it calls open.
func (functions) NewStore(o Options, open func() (driver.Driver, error)) (*Store, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	d, err := open()
	if err != nil {
		return nil, err
	}
	return newStore(d, o), nil
}

func (functions) ReserveIn(ctx context.Context, s *Store, tx driver.CallerTx, r Request) (Reservation, error) {
	if err := r.validate(); err != nil {
		return Reservation{}, err
	}
	return s.reserveIn(ctx, tx, order{Request: r})
}

func (functions) ReserveAllIn(ctx context.Context, s *Store, tx driver.CallerTx, c Cart) (Reservation, error) {
	o, err := c.order()
	if err != nil {
		return Reservation{}, err
	}
	return s.reserveIn(ctx, tx, o)
}

// reserveIn is reserve in a transaction of the caller's.
func (s *Store) reserveIn(ctx context.Context, tx driver.CallerTx, o order) (Reservation, error) {
	if s.calls.isClosed() {
		return Reservation{}, fmt.Errorf("%w: nothing was sent", dblock.ErrClosed)
	}
	return s.seller.reserveIn(ctx, tx, o)
}

// Granted leaves out what is refused.
func (functions) Granted(plan driver.Plan, began time.Time) []Reservation {
	var granted []Reservation
	for i := 0; i < len(plan.Insert); {
		rows := plan.Insert[i:]
		if n := slices.IndexFunc(rows, func(r driver.Row) bool { return r.Key != rows[0].Key }); n > 0 {
			rows = rows[:n]
		}
		i += len(rows)
		if ReservationState(rows[0].State) != ReservationRefused {
			granted = append(granted, reservation(rows, began))
		}
	}
	return granted
}
