package programs

import (
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/dblock-go/dblock/inventory"
)

// orderState is what is recorded under a key. Of a hold it is known when it ends at the earliest,
// and at the latest.
type orderState struct {
	state           inventory.ReservationState // 0: nothing is recorded
	buyer, contents string                     // without contents: cancelled before it was ordered
	limit           bool                       // refused for its limit
	early, late     int64
	swept           bool // of what has expired: the table shows it
}

// orderModel has all states that a key may be in.
var orderModel = func() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{orderState{}} },
		Step: func(state, input, _ any) (next []any) {
			o := input.(inventoryOp)
			for _, s := range state.(orderState).next(&o) {
				next = append(next, s)
			}
			return next
		},
	}
	return m.ToModel()
}()

// clockSlack is by how much the database's times are rounded.
const clockSlack = int64(time.Millisecond)

// held reports that the hold may be alive during a call; due that it may have expired.
func (s orderState) held(o *inventoryOp) bool {
	return s.state == inventory.ReservationHeld && o.Called < s.late+clockSlack
}

func (s orderState) due(o *inventoryOp) bool {
	if s.state == inventory.ReservationHeld {
		return o.Returned == never || o.Returned+clockSlack > s.early
	}
	return s.state == inventory.ReservationExpired
}

func (s orderState) to(state inventory.ReservationState) orderState {
	s.state, s.early, s.late = state, 0, 0
	return s
}

// until is the state of a hold that a call has made or extended.
func (s orderState) until(o *inventoryOp) orderState {
	s.early = max(s.early, o.Called+o.Hold.Nanoseconds())
	if o.Returned == never || s.late == never {
		s.late = never - clockSlack
	} else {
		s.late = max(s.late, o.Returned+o.Hold.Nanoseconds())
	}
	return s
}

// next are the states after a call. There is none if the answer is untrue.
func (s orderState) next(o *inventoryOp) []orderState {
	if o.Answer == unresolved {
		return append(s.after(o), s)
	}
	if o.Answer == granted && s.contents != "" && o.Got != "" && o.Got != s.contents {
		return nil
	}
	if o.Do == looks || o.Do == inTable {
		return s.seen(o)
	}
	if o.orders() {
		return s.ordered(o)
	}
	return s.changed(o)
}

// after are the states that a call makes of s if it takes effect.
func (s orderState) after(o *inventoryOp) []orderState {
	none := s.state == 0
	switch {
	case o.orders() && none:
		all := []orderState{s.granted(o)}
		if o.Records || o.Faults {
			all = append(all, s.refused(o, false), s.refused(o, true))
		}
		return all
	case o.Do == confirms && s.held(o):
		return []orderState{s.to(inventory.ReservationSold)}
	case o.Do == extends && s.held(o):
		return []orderState{s.until(o)}
	case o.Do == aborts && none:
		return []orderState{{state: inventory.ReservationCancelled}}
	case o.Do == aborts && s.state == inventory.ReservationHeld:
		var all []orderState
		if s.held(o) {
			all = append(all, s.to(inventory.ReservationCancelled))
		}
		if s.due(o) {
			expired := s.to(inventory.ReservationExpired)
			expired.swept = true
			all = append(all, expired)
		}
		return all
	}
	return nil
}

func (s orderState) granted(o *inventoryOp) orderState {
	s = orderState{state: inventory.ReservationSold, buyer: o.Buyer, contents: contentsOf(o.Lines)}
	if o.Hold > 0 {
		s.state = inventory.ReservationHeld
		s = s.until(o)
	}
	return s
}

func (s orderState) refused(o *inventoryOp, limit bool) orderState {
	return orderState{state: inventory.ReservationRefused, buyer: o.Buyer, contents: contentsOf(o.Lines), limit: limit}
}

func only(s orderState, when bool) []orderState {
	if when {
		return []orderState{s}
	}
	return nil
}

// ordered are the states after the answer to an order.
func (s orderState) ordered(o *inventoryOp) []orderState {
	none, same := s.state == 0, s.buyer == o.Buyer && s.contents == contentsOf(o.Lines)
	switch o.Answer {
	case granted:
		if none && !o.Replayed {
			got := s.granted(o)
			got.early = max(got.early, o.Until)
			return only(got, got.state == o.State)
		}
		s.early = max(s.early, o.Until)
		return only(s, same && o.Replayed && s.state == o.State && (s.state == inventory.ReservationSold || s.held(o)))
	case soldOut, overLimit:
		limit := o.Answer == overLimit
		if none && (!o.Replayed || o.Faults) {
			if after := s.refused(o, limit); o.Records || o.Faults { // a refusal after a lost connection is recorded
				return append(only(s, !o.Records), after)
			}
			return []orderState{s}
		}
		return only(s, same && o.Replayed && s.state == inventory.ReservationRefused && s.limit == limit)
	case isCancelled:
		return only(s, s.state == inventory.ReservationCancelled && (same || s.contents == ""))
	case isExpired:
		return s.readAsExpired(o, same)
	case isReused:
		return only(s, s.contents != "" && !same)
	case isUnknown:
		return only(s, none)
	}
	return nil
}

// readAsExpired are the states after a call that only reads has found an expired hold. A change
// that began in time, and is being committed, may still confirm or extend the hold.
func (s orderState) readAsExpired(o *inventoryOp, is bool) []orderState {
	if s.state == inventory.ReservationHeld {
		return append(only(s, is && s.due(o)), only(s.to(inventory.ReservationExpired), is && s.due(o))...)
	}
	return only(s, is && s.due(o))
}

// changed are the states after the answer to a change of an order.
func (s orderState) changed(o *inventoryOp) []orderState {
	switch o.Answer {
	case granted:
		if o.Do == aborts {
			return s.cancelled(o)
		}
		if o.Do == confirms && s.state == inventory.ReservationSold && o.Replayed {
			return []orderState{s}
		}
		if o.Replayed && !o.Faults {
			return nil
		}
		after := s.after(o)
		for i := range after {
			after[i].early = max(after[i].early, o.Until)
		}
		return after
	case isCancelled:
		return only(s, s.state == inventory.ReservationCancelled)
	case isExpired:
		return only(s.to(inventory.ReservationExpired), s.due(o))
	case isConfirmed:
		return only(s, s.state == inventory.ReservationSold)
	case soldOut:
		return only(s, s.state == inventory.ReservationRefused)
	case notFound:
		return only(s, s.state == 0)
	}
	return nil
}

// cancelled are the states after a Cancel that is no error.
func (s orderState) cancelled(o *inventoryOp) []orderState {
	if s.state == inventory.ReservationSold {
		return nil
	}
	if s.state == inventory.ReservationCancelled || s.state == inventory.ReservationExpired || s.state == inventory.ReservationRefused {
		return only(s, o.State == s.state)
	}
	var all []orderState
	for _, after := range s.after(o) {
		if after.state == o.State {
			all = append(all, after)
		}
	}
	return all
}

// seen are the states that a Lookup, or the table, may show. Until a hold that has expired is swept
// the table has it as held.
func (s orderState) seen(o *inventoryOp) []orderState {
	switch {
	case o.Answer == notFound:
		return only(s, s.state == 0)
	case o.Do == inTable && o.Buyer != s.buyer:
		return nil
	case o.Answer != granted || o.State == 0 || s.contents != o.Got:
		return nil
	case o.State == inventory.ReservationHeld:
		if o.Do == inTable {
			return only(s, s.state == inventory.ReservationHeld || s.state == inventory.ReservationExpired && !s.swept)
		}
		return only(s, s.held(o))
	case o.State == inventory.ReservationExpired:
		return s.readAsExpired(o, true)
	}
	return only(s, s.state == o.State)
}
