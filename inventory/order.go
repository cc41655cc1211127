package inventory

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// order is a Request, or a Cart as one: then it has lines, and no SKU.
type order struct {
	Request
	lines []Line // sorted by SKU, no two the same; nil: the Request itself is the only one

	open   bool   // another open transaction writes its key, as far as is known
	behind string // the lane of a limit of its, whose orders wait for a lock; empty: there is none.
	looked bool   // it is to be decided with what is recorded at hand: see seller.decide
	swept  bool   // its buyer's expired holds were swept

	unresolved bool // an attempt of it may yet be committed: a refusal is recorded
}

// isPlain reports that an order is for stock of one SKU, and has no limit.
func (o *order) isPlain() bool { return o.lines == nil && o.Limit == 0 && !o.Unstocked }

// quota is what its limit is of, if it is for one SKU.
func (o *order) quota() driver.Quota { return driver.Quota{SKU: o.SKU, Buyer: o.Buyer} }

// order makes a cart of one SKU what a Request for it would be.
func (c Cart) order() (order, error) {
	o := order{Request: Request{Key: c.Key, Buyer: c.Buyer, Hold: c.Hold}}
	if err := checkCommon(c.Key, c.Buyer, c.Hold, "Cart"); err != nil {
		return o, err
	}
	if len(c.Lines) < 1 || len(c.Lines) > MaxLines {
		return o, invalid("Cart.Lines", "%d lines are not within 1 to %d", len(c.Lines), MaxLines)
	}
	o.lines = slices.Clone(c.Lines)
	for i, l := range o.lines {
		if err := l.validate(fmt.Sprintf("Cart.Lines[%d]", i)); err != nil {
			return o, err
		}
		if l.Limit > 0 && c.Buyer == "" {
			return o, invalid("Cart.Buyer", "it is empty, and a limit needs a buyer")
		}
	}
	slices.SortStableFunc(o.lines, func(a, b Line) int { return cmp.Compare(a.SKU, b.SKU) })
	var err error
	if o.lines, err = addedUp(o.lines); err != nil {
		return o, err
	}
	if len(o.lines) == 1 {
		l := o.lines[0]
		o.SKU, o.Qty, o.Limit, o.Unstocked, o.lines = l.SKU, l.Qty, l.Limit, l.Unstocked, nil
	}
	return o, nil
}

// addedUp makes one line of those of the same SKU, as they draw on the same stock.
func addedUp(lines []Line) ([]Line, error) {
	var sums []Line
	for _, l := range lines {
		last := len(sums) - 1
		if last < 0 || sums[last].SKU != l.SKU {
			sums = append(sums, l)
			continue
		}
		sum := &sums[last]
		if sum.Limit != l.Limit || sum.Unstocked != l.Unstocked {
			return nil, invalid("Cart.Lines", "two lines of %q have not the same Limit and Unstocked", l.SKU)
		}
		if sum.Qty += l.Qty; sum.Qty > MaxQty {
			return nil, invalid("Cart.Lines", "those of %q add up to %d, more than %d", l.SKU, sum.Qty, int64(MaxQty))
		}
	}
	return sums, nil
}

// each yields the lines, by their number.
func (o *order) each() iter.Seq2[int, Line] {
	return func(yield func(int, Line) bool) {
		if o.lines == nil {
			yield(0, Line{o.SKU, o.Qty, o.Limit, o.Unstocked})
			return
		}
		for i, l := range o.lines {
			if !yield(i, l) {
				return
			}
		}
	}
}

// lane is what orders contend for in the queue.
func (o *order) lane() string {
	switch {
	case o.open:
		return keyLane(o.Key)
	case o.behind != "":
		return o.behind
	case o.lines != nil:
		return cartLane
	}
	return o.SKU
}

// stock is the lanes of the SKUs of a cart.
func (o *order) stock() (lanes []string) {
	if o.open {
		return nil
	}
	for _, l := range o.lines {
		if !l.Unstocked {
			lanes = append(lanes, l.SKU)
		}
	}
	return lanes
}

// state is where a reservation stands that is granted.
func (o *order) state() ReservationState {
	if o.Hold > 0 {
		return ReservationHeld
	}
	return ReservationSold
}

// rows are the lines as the database holds them.
func (o *order) rows(s ReservationState) []driver.Row {
	var rows []driver.Row
	for i, l := range o.each() {
		row := driver.Row{
			Key: o.Key, Line: int32(i), SKU: l.SKU, Buyer: o.Buyer, Qty: l.Qty, State: int16(s), Limited: l.Limit > 0,
		}
		if l.Unstocked {
			row.Bucket = driver.NoStock
		}
		if s == ReservationHeld {
			row.Hold, row.Left = o.Hold, o.Hold
		}
		rows = append(rows, row)
	}
	return rows
}

// reservation is what the caller gets; began is when it called.
func (o *order) reservation(out outcome, began time.Time) Reservation {
	if out.State == 0 {
		return Reservation{}
	}
	r := Reservation{Key: o.Key, SKU: o.SKU, Buyer: o.Buyer, Qty: o.Qty, Lines: o.lines, State: out.State, Replayed: out.Replayed}
	if out.State == ReservationHeld {
		r.ExpiresAt = began.Add(out.left)
	}
	return r
}

// reservation is what is recorded; began is when its reader called.
func reservation(rows []driver.Row, began time.Time) Reservation {
	first := rows[0]
	r := Reservation{Key: first.Key, Buyer: first.Buyer, State: stateOf(first)}
	if len(rows) == 1 {
		r.SKU, r.Qty = first.SKU, first.Qty
	} else {
		for _, row := range rows {
			r.Lines = append(r.Lines, Line{SKU: row.SKU, Qty: row.Qty, Unstocked: row.Bucket == driver.NoStock})
		}
	}
	if r.State == ReservationHeld {
		r.ExpiresAt = began.Add(first.Left)
	}
	if first.SKU == "" { // it was cancelled before it was reserved
		r.Qty = 0
	}
	return r
}

// stateOf calls expired what is so, whether it was swept or not.
func stateOf(row driver.Row) ReservationState {
	if s := ReservationState(row.State); s != ReservationHeld || row.Left > 0 {
		return s
	}
	return ReservationExpired
}
