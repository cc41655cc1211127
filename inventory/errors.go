package inventory

import (
	"errors"
	"fmt"

	"github.com/dblock-go/dblock"
)

// Errors of a Store, besides those that all of dblock shares (ErrOverloaded, ErrBusy, ErrConflict,
// ErrUnavailable, ErrOutcomeUnknown, ErrSchema, ErrClosed). They are disjoint, but for an
// ErrRejected whose outcome is unknown: match them with errors.Is.
var (
	// ErrSoldOut: fewer units are left than were asked for, as read from the database after the
	// call. The error is a *SoldOutError.
	ErrSoldOut = errors.New("inventory: sold out")

	// ErrLimitExceeded: the buyer would have more units than the order's Limit. The error is a
	// *BuyerLimitError.
	ErrLimitExceeded = errors.New("inventory: limit exceeded")

	// ErrCancelled: the reservation was cancelled, perhaps before it was made. The error is a
	// *StateError.
	ErrCancelled = errors.New("inventory: cancelled")

	// ErrExpired: the time for which units were held is up. The error is a *StateError.
	ErrExpired = errors.New("inventory: expired")

	// ErrAlreadyConfirmed: the units are sold, and no longer held. The error is a *StateError.
	ErrAlreadyConfirmed = errors.New("inventory: already confirmed")

	// ErrKeyReused: the key was used before, with other contents. The error is a *KeyReusedError.
	ErrKeyReused = errors.New("inventory: key reused")

	// ErrUnknownSKU: no such SKU was ever restocked. The error is an *UnknownSKUError.
	ErrUnknownSKU = errors.New("inventory: unknown SKU")

	// ErrNotFound: nothing is recorded under the key.
	ErrNotFound = errors.New("inventory: not found")

	// ErrRejected: the database refused this one request, by a trigger or a constraint of its
	// owner's, say. It wraps the driver's error; nothing was written. The exception is a hook that
	// has ended its transaction: the error is also dblock.ErrOutcomeUnknown.
	// A trigger that ends with a timeout is dblock.ErrBusy, and one that ends with a conflict is
	// dblock.ErrConflict: others may be the reason.
	ErrRejected = errors.New("inventory: rejected by the database")
)

// SoldOutError says how much was left.
type SoldOutError struct {
	Key, SKU  string
	Wanted    int64
	Available int64 // units left when it was decided
	Cached    bool  // nothing was left a moment ago: see Options.SoldOutTTL
	Replayed  bool  // it was refused before and is recorded: Available is not known, nor SKU and Wanted of a cart

	// Short lists all lines of a cart that are short, sorted by SKU. The first one is in SKU,
	// Wanted and Available, too. It is nil for an order of one SKU, and if Cached or Replayed is
	// set.
	Short []Shortage
}

// Shortage is a line of a cart that wants more units than were left.
type Shortage struct {
	SKU               string
	Wanted, Available int64
}

func (e *SoldOutError) Error() string {
	switch {
	case e.Replayed && e.SKU == "":
		return fmt.Sprintf("inventory: sold out: cart %q was refused before", e.Key)
	case e.Replayed:
		return fmt.Sprintf("inventory: sold out: order %q for %d of %q was refused before", e.Key, e.Wanted, e.SKU)
	}
	text := fmt.Sprintf("inventory: sold out: order %q wants %d of %q, %d left", e.Key, e.Wanted, e.SKU, e.Available)
	for i, s := range e.Short {
		if i > 0 {
			text += fmt.Sprintf("; %d of %q, %d left", s.Wanted, s.SKU, s.Available)
		}
	}
	return text
}

// Is makes errors.Is(err, ErrSoldOut) true.
func (e *SoldOutError) Is(target error) bool { return target == ErrSoldOut }

// BuyerLimitError says how much the buyer has.
type BuyerLimitError struct {
	Key, SKU, Buyer string
	Wanted          int64
	Limit           int64
	Used            int64 // units that count, when it was decided
	Replayed        bool  // it was refused before and is recorded: Used is not known
}

func (e *BuyerLimitError) Error() string {
	if e.Replayed {
		return fmt.Sprintf("inventory: limit exceeded: order %q for %d of %q was refused before", e.Key, e.Wanted, e.SKU)
	}
	return fmt.Sprintf("inventory: limit exceeded: order %q wants %d of %q, buyer %q has %d and may have %d",
		e.Key, e.Wanted, e.SKU, e.Buyer, e.Used, e.Limit)
}

// Is makes errors.Is(err, ErrLimitExceeded) true.
func (e *BuyerLimitError) Is(target error) bool { return target == ErrLimitExceeded }

// StateError says in which state the reservation is that a call could not change.
type StateError struct {
	Key   string
	State ReservationState
}

func (e *StateError) Error() string {
	return fmt.Sprintf("inventory: reservation %q is %v; nothing was changed", e.Key, e.State)
}

// Is makes errors.Is true for ErrCancelled, ErrExpired, ErrAlreadyConfirmed or ErrSoldOut, by the
// state.
func (e *StateError) Is(target error) bool {
	switch e.State {
	case ReservationCancelled:
		return target == ErrCancelled
	case ReservationExpired:
		return target == ErrExpired
	case ReservationSold:
		return target == ErrAlreadyConfirmed
	case ReservationRefused:
		return target == ErrSoldOut
	}
	return false
}

// KeyReusedError says what the key stands for.
type KeyReusedError struct {
	Key      string
	Recorded string // what is recorded under it
	Sent     string // what was sent now
}

func (e *KeyReusedError) Error() string {
	return fmt.Sprintf("inventory: key %q reused: it stands for %s, and was sent with %s; nothing was written", e.Key, e.Recorded, e.Sent)
}

// Is makes errors.Is(err, ErrKeyReused) true.
func (e *KeyReusedError) Is(target error) bool { return target == ErrKeyReused }

// UnknownSKUError says which SKU there is no stock of.
type UnknownSKUError struct{ Key, SKU string }

func (e *UnknownSKUError) Error() string {
	return fmt.Sprintf("inventory: unknown SKU %q in %q: it was never restocked; nothing was written", e.SKU, e.Key)
}

// Is makes errors.Is(err, ErrUnknownSKU) true.
func (e *UnknownSKUError) Is(target error) bool { return target == ErrUnknownSKU }

// invalid returns the error of a field that is refused. Nothing was sent.
func invalid(field, format string, args ...any) error {
	return &dblock.InvalidError{Field: field, Reason: fmt.Sprintf(format, args...)}
}
