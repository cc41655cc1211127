package inventory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/dblock-go/dblock/inventory"
)

// model is an inventory without a database. It gives the answers of a Store that one caller uses.
type model struct {
	records bool             // refusals
	stock   map[string]int64 // the sum of changes
	changes map[string]inventory.Adjustment
	orders  map[string]*modelOrder
	moment  int64 // grows with each order that expires
}

// modelOrder is an order as it is recorded.
type modelOrder struct {
	buyer string
	lines []inventory.Line // none: the key was cancelled before its order
	state inventory.State
	due   int64  // it expired at that moment, and is not swept; 0: it is swept, or has not expired
	kind  string // of its refusal
}

func newModel(records bool) *model {
	return &model{records, map[string]int64{}, map[string]inventory.Adjustment{}, map[string]*modelOrder{}, 0}
}

// kindOfState is the error that names a state.
var kindOfState = map[inventory.State]string{
	inventory.Sold: isConfirmed, inventory.Cancelled: isCancelled,
	inventory.Expired: isExpired, inventory.Refused: isSoldOut,
}

func (m *model) do(d op) reply {
	switch d.What {
	case toReserve, toCart:
		return m.reserve(d)
	case toSweep:
		return reply{Qty: int64(m.sweep(d.Most, ""))}
	case toRestock:
		return m.restock(d.Adjustment)
	}
	o, cancels, confirms := m.orders[d.Request.Key], d.What == toCancel, d.What == toConfirm
	if o == nil && cancels {
		m.orders[d.Request.Key] = &modelOrder{state: inventory.Cancelled}
		return reply{State: inventory.Cancelled}
	}
	if o == nil {
		return reply{Kind: isNotFound}
	}
	switch isHeld, isSold := o.state == inventory.Held, o.state == inventory.Sold; {
	case d.What == toLookUp, d.What == toExtend && isHeld:
	case confirms && isHeld:
		o.state = inventory.Sold
	case cancels && isHeld:
		o.state = inventory.Cancelled
	case cancels && o.due > 0:
		o.due = 0
	case confirms && isSold, cancels && !isSold:
		return o.reply(true)
	default:
		return reply{Kind: kindOfState[o.state]}
	}
	return o.reply(false)
}

func (o *modelOrder) reply(replayed bool) reply {
	r := reply{State: o.state, Replayed: replayed, Ends: o.state == inventory.Held}
	if len(o.lines) == 1 {
		r.SKU, r.Qty = o.lines[0].SKU, o.lines[0].Qty
	} else {
		r.Lines = unlimited(o.lines)
	}
	return r
}

// unlimited are lines as they are recorded: without their limit.
func unlimited(lines []inventory.Line) []inventory.Line {
	lines = slices.Clone(lines)
	for i := range lines {
		lines[i].Limit = 0
	}
	return lines
}

// linesOf are the lines of an order or a cart, as a Store sorts and adds them up.
func linesOf(d op) (lines []inventory.Line) {
	if r := d.Request; d.What != toCart {
		return []inventory.Line{{SKU: r.SKU, Qty: r.Qty, Limit: r.Limit, Unstocked: r.Unstocked}}
	}
	sorted := slices.Clone(d.Lines)
	slices.SortStableFunc(sorted, func(a, b inventory.Line) int { return cmp.Compare(a.SKU, b.SKU) })
	for _, l := range sorted {
		if n := len(lines); n > 0 && lines[n-1].SKU == l.SKU {
			lines[n-1].Qty += l.Qty
		} else {
			lines = append(lines, l)
		}
	}
	return lines
}

func (m *model) reserve(d op) reply {
	key, buyer, lines := d.Request.Key, d.Request.Buyer, linesOf(d)
	if o := m.orders[key]; o != nil {
		return o.again(buyer, lines)
	}
	kind, detail := m.refuse(buyer, lines)
	if kind == isLimited && m.sweep(len(m.orders), buyer) > 0 {
		kind, detail = m.refuse(buyer, lines)
	}
	o := &modelOrder{buyer: buyer, lines: lines, state: inventory.Sold, kind: kind}
	switch {
	case kind != "":
		o.state = inventory.Refused
	case d.Request.Hold > 0:
		o.state = inventory.Held
	}
	if kind == "" || m.records && kind != isUnknownSKU {
		m.orders[key] = o
	}
	r := o.reply(false)
	r.Kind, r.Detail = kind, detail
	return r
}

// again answers an order under a key that is recorded.
func (o *modelOrder) again(buyer string, lines []inventory.Line) reply {
	if o.lines == nil {
		o = &modelOrder{buyer: buyer, lines: lines, state: inventory.Cancelled}
	}
	if o.buyer != buyer || !slices.Equal(unlimited(o.lines), unlimited(lines)) {
		return reply{Kind: isReused}
	}
	r := o.reply(true)
	if o.kind != "" {
		r.Kind, r.Detail = o.kind, "as before"
	} else if r.State != inventory.Sold {
		r.Kind = kindOfState[r.State]
	}
	return r
}

// refuse names the first line that is over its limit or of an unknown SKU, else all that are short.
func (m *model) refuse(buyer string, lines []inventory.Line) (kind, detail string) {
	for _, l := range lines {
		if used := m.used(l.SKU, buyer); l.Limit > 0 && used+l.Qty > l.Limit {
			return isLimited, fmt.Sprintf("%s, used %d", l.SKU, used)
		}
		if l.Unstocked {
			continue
		}
		if _, known := m.stock[l.SKU]; !known {
			return isUnknownSKU, l.SKU
		}
		if units := m.balance(l.SKU).Available; l.Qty > units {
			if kind != "" {
				detail += "; "
			}
			kind, detail = isSoldOut, detail+left(l.SKU, units)
		}
	}
	return kind, detail
}

// each calls f with each line of an SKU that is held or sold, or expired and not swept.
func (m *model) each(sku string, f func(o *modelOrder, l inventory.Line)) {
	for _, o := range m.orders {
		for _, l := range o.lines {
			if l.SKU == sku && (o.state == inventory.Held || o.state == inventory.Sold || o.due > 0) {
				f(o, l)
			}
		}
	}
}

// used is the number of units that count against a buyer's limit.
func (m *model) used(sku, buyer string) (n int64) {
	m.each(sku, func(o *modelOrder, l inventory.Line) {
		if o.buyer == buyer && l.Limit > 0 {
			n += l.Qty
		}
	})
	return n
}

func (m *model) balance(sku string) inventory.Balance {
	b := inventory.Balance{SKU: sku, Restocked: m.stock[sku]}
	m.each(sku, func(o *modelOrder, l inventory.Line) {
		switch {
		case l.Unstocked:
		case o.state == inventory.Sold:
			b.Sold += l.Qty
		default:
			b.Held += l.Qty
		}
	})
	b.Available = b.Restocked - b.Held - b.Sold
	return b
}

// books are all balances, in the order of SKUs.
func (m *model) books() (all []inventory.Balance) {
	for _, sku := range slices.Sorted(maps.Keys(m.stock)) {
		all = append(all, m.balance(sku))
	}
	return all
}

// expire ends a hold, and returns the moment of its end. It returns 0 if the order is not held.
func (m *model) expire(key string) int64 {
	o := m.orders[key]
	if o == nil || o.state != inventory.Held {
		return 0
	}
	m.moment++
	o.state, o.due = inventory.Expired, m.moment
	return m.moment
}

// sweep sweeps expired holds of a buyer, or of any, the oldest first. It returns how many.
func (m *model) sweep(most int, buyer string) int {
	var due []*modelOrder
	for _, o := range m.orders {
		if o.due > 0 && (buyer == "" || o.buyer == buyer) {
			due = append(due, o)
		}
	}
	slices.SortFunc(due, func(a, b *modelOrder) int { return cmp.Compare(a.due, b.due) })
	due = due[:min(most, len(due))]
	for _, o := range due {
		o.due = 0
	}
	return len(due)
}

func (m *model) restock(a inventory.Adjustment) reply {
	was, found := m.changes[a.ID]
	_, known := m.stock[a.SKU]
	units := m.balance(a.SKU).Available
	switch {
	case found && was != a:
		return reply{Kind: isReused}
	case found:
		return reply{Replayed: true}
	case !known && a.Delta < 0:
		return reply{Kind: isUnknownSKU, Detail: a.SKU}
	case units+a.Delta < 0:
		return reply{Kind: isSoldOut, Detail: left(a.SKU, units)}
	}
	m.stock[a.SKU] += a.Delta
	m.changes[a.ID] = a
	return reply{}
}
