package inventory

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/callback"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// Granted is for the hooks of the engine rooms: what a plan grants, key by key. began is when it was sent.
func Granted(plan engine.Plan, began time.Time) []Reservation {
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

// CallHook is for the hooks of the engine rooms. One that panics, or ends its goroutine, has failed: the batch of
// others would end with it.
func CallHook(hook func() error) (err error) {
	if p := callback.Try(func() { err = callback.Sound(hook()) }); p != nil {
		return &hookError{fmt.Errorf("the hook %w", p)}
	}
	return err
}

var (
	// ErrHookEnded: the transaction of a hook has ended. It is not known whether it was committed.
	ErrHookEnded error = &hookError{errors.New("the hook has returned no error, and its transaction has ended")}
	// ErrHookSwallowed: a statement of a hook has failed, and so has the transaction.
	ErrHookSwallowed error = &hookError{errors.New("the hook has returned no error, and one of its statements has failed")}
)

// HookFailed is for the hooks of the engine rooms: one order of the batch may be to blame, unless the database said that nobody
// is, or the connection is gone. A key of the owner's that is taken is not one of ours, nor is a table that is missing.
func HookFailed(err error, is sqlerr.Class) error {
	var hook *hookError
	if errors.As(err, &hook) {
		return err
	}
	switch is {
	case sqlerr.Busy:
		return &hookBusy{err}
	case sqlerr.Retryable, sqlerr.Unavailable, sqlerr.Unresolved, sqlerr.Overloaded:
		return err
	}
	return &hookError{err}
}

// hookError is what a hook said of its own accord.
type hookError struct{ error }

func (e *hookError) Unwrap() error { return e.error }

// hookBusy is a statement of a hook's that did not get a lock in time.
type hookBusy struct{ error }

func (e *hookBusy) Unwrap() error { return e.error }

// fault tells what an error means, of the engine or of its owner's hook.
func (s *Store) classify(err error) sqlerr.Class {
	var hook *hookError
	if errors.As(err, &hook) {
		return sqlerr.BadInput
	}
	return s.engine.Classify(err)
}
