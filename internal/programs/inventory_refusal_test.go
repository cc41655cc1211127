package programs

import (
	"slices"

	"github.com/dblock-go/dblock/inventory"
)

// span is when an order, or an adjustment, may have counted.
type span struct {
	first int64 // it was sent first
	done  int64 // it was certainly recorded
	freed int64 // it was certainly given back
	late  int64 // its hold had certainly expired
}

// refusalChecker checks the answers that there was too little, or that a limit was reached.
type refusalChecker struct {
	inventoryLog
	spans map[string]*span // of keys
}

// checkRefusals says which refusals are untrue: enough was left during all of the call.
func checkRefusals(v *verdict, all inventoryLog) {
	j := refusalChecker{all, map[string]*span{}}
	for _, o := range all.ops {
		j.note(o)
	}
	for _, o := range all.ops {
		if o.Replayed || v.kind == "sold out" || v.kind == "limit" {
			continue
		}
		for _, s := range o.Short {
			left, used := int64(0), int64(0)
			switch o.Answer {
			case soldOut:
				left = j.leastLeft(s.SKU, o.Called-o.Latch.Nanoseconds(), o.Returned)
			case overLimit:
				used = j.mostUsed(s.SKU, o)
			}
			switch {
			case o.Answer == soldOut && s.Available >= s.Wanted:
				v.add("sold out", "an answer that contradicts itself: %s", showOps([]inventoryOp{o}))
			case o.Answer == soldOut && left >= s.Wanted:
				v.add("sold out", "%d were left of %s: %s\n%s", left, s.SKU, showOps([]inventoryOp{o}), showOps(j.of(s.SKU)))
			case o.Answer == overLimit && used+s.Wanted <= buyerLimit:
				v.add("limit", "the buyer had %d of %s: %s\n%s", used, s.SKU, showOps([]inventoryOp{o}), showOps(j.of(s.SKU)))
			}
		}
	}
}

// note adds what a call says about the times of its key.
func (j *refusalChecker) note(o inventoryOp) {
	s := j.spans[o.Key]
	if s == nil {
		s = &span{first: never, done: never, freed: never}
		j.spans[o.Key] = s
	}
	if o.Answer == nothing {
		return
	}
	if o.orders() || o.Do == restocks {
		s.first = min(s.first, o.Called)
	}
	if o.Answer == granted {
		s.done = min(s.done, o.Returned)
	}
	if o.Answer == isCancelled || o.Do == aborts && o.Answer == granted {
		s.freed = min(s.freed, o.Returned)
	}
	if !o.orders() && o.Do != extends {
		return
	}
	if s.late = max(s.late, o.Returned); s.late != never {
		s.late = max(s.late, o.Returned+o.Hold.Nanoseconds()+clockSlack)
	}
}

// of are the calls for an SKU's orders.
func (j *refusalChecker) of(sku string) []inventoryOp {
	keys := map[string]bool{}
	for _, r := range j.rows {
		keys[r.Key] = keys[r.Key] || r.SKU == sku
	}
	return slices.DeleteFunc(slices.Clone(j.ops), func(o inventoryOp) bool { return !keys[o.Key] && o.Do != restocks })
}

// leastLeft is what was left of an SKU at least, at each moment of a time.
func (j *refusalChecker) leastLeft(sku string, from, to int64) (n int64) {
	for id, l := range j.changes {
		s := j.spans[id]
		counts := s == nil || l.Qty > 0 && s.done <= from || l.Qty < 0 && s.first <= to // nil: it came before all calls
		if l.SKU == sku && counts {
			n += l.Qty
		}
	}
	for _, r := range j.rows {
		if r.SKU == sku && r.Bucket >= 0 && j.may(r, from, to, false) {
			n -= r.Qty
		}
	}
	return n
}

// mostUsed is what counted against a buyer's limit at most, at any moment of a call. What has
// expired does not count, but an order that meets locked rows may not have
// found it.
func (j *refusalChecker) mostUsed(sku string, o inventoryOp) (n int64) {
	for _, r := range j.rows {
		if r.SKU == sku && r.Buyer == o.Buyer && r.Limited && j.may(r, o.Called, o.Returned, !o.Tx && !j.faults) {
			n += r.Qty
		}
	}
	return n
}

// may reports whether a row may have been held or sold at a moment between two others.
func (j *refusalChecker) may(r orderRow, from, to int64, expires bool) bool {
	s := j.spans[r.Key]
	if r.State == inventory.ReservationRefused || s == nil {
		return false
	}
	end := s.freed
	if expires && r.State != inventory.ReservationSold {
		end = min(end, s.late)
	}
	return s.first <= to && end >= from
}
