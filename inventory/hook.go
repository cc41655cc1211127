package inventory

import (
	"errors"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/engine"
)

func init() {
	engine.NewStore = func(options any, open func() (engine.Engine, error)) (any, error) {
		return openStore(options.(Options), open)
	}
	engine.Granted = func(plan engine.Plan, began time.Time) any { return grantedBy(plan, began) }
}

// grantedBy returns what a plan grants.
func grantedBy(plan engine.Plan, began time.Time) []Reservation {
	var granted []Reservation
	for i := 0; i < len(plan.Insert); {
		rows := plan.Insert[i:]
		if n := slices.IndexFunc(rows, func(r engine.Row) bool { return r.Key != rows[0].Key }); n > 0 {
			rows = rows[:n]
		}
		i += len(rows)
		if ReservationState(rows[0].State) != ReservationRefused {
			granted = append(granted, reservation(rows, began))
		}
	}
	return granted
}

// classify tells what an error means, of the engine or of a hook.
func (s *Store) classify(err error) sqlerr.Class {
	var hook *engine.HookError
	if errors.As(err, &hook) {
		return sqlerr.BadInput
	}
	return s.engine.Classify(err)
}
