package inventory

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/dblock-go/dblock/inventory"
)

// model is an inventory without a database: what a Store is to answer where nobody is in its way.
type model struct {
	records bool // refusals
	stock   map[string]*inventory.Balance
	orders  map[string]*modelled
	changes map[string]inventory.Adjustment
	moment  int64 // grows with each order that is made to expire
}

// modelled is an order as it is recorded.
type modelled struct {
	buyer string
	lines []inventory.Line // none: it was cancelled before it was made
	state inventory.State
	due   int64 // held, and the time is up: since that moment; 0: it is not
	limit bool  // it was refused for its limit
}

func newModel(records bool) *model {
	return &model{
		records: records, stock: map[string]*inventory.Balance{}, orders: map[string]*modelled{}, changes: map[string]inventory.Adjustment{},
	}
}

// linesOf are what an op asks for, as a Store sorts and adds them up.
func linesOf(d op) []inventory.Line {
	if d.What != toCart {
		return []inventory.Line{{SKU: d.Request.SKU, Qty: d.Request.Qty, Limit: d.Request.Limit, Unstocked: d.Request.Unstocked}}
	}
	var sums []inventory.Line
	for _, l := range d.Lines {
		at := slices.IndexFunc(sums, func(other inventory.Line) bool { return other.SKU == l.SKU })
		if at < 0 {
			sums = append(sums, l)
		} else {
			sums[at].Qty += l.Qty
		}
	}
	slices.SortFunc(sums, func(a, b inventory.Line) int { return cmp.Compare(a.SKU, b.SKU) })
	return sums
}

// is where an order stands.
func (o *modelled) is() inventory.State {
	if o.due > 0 {
		return inventory.Expired
	}
	return o.state
}

func (o *modelled) reply(replayed bool) reply {
	return replyOf(o.lines, o.is(), replayed)
}

func replyOf(lines []inventory.Line, state inventory.State, replayed bool) reply {
	r := reply{State: state, Replayed: replayed, Ends: state == inventory.Held}
	if len(lines) == 1 {
		r.SKU, r.Qty = lines[0].SKU, lines[0].Qty
	} else {
		r.Lines = unlimited(lines)
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

func (m *model) reserve(d op) reply {
	lines := linesOf(d)
	if o, found := m.orders[d.Request.Key]; found {
		return m.again(o, d.Request.Buyer, lines)
	}
	state := inventory.Sold
	if d.Request.Hold > 0 {
		state = inventory.Held
	}
	kind, detail := m.refuse(d.Request.Buyer, lines)
	if kind == isLimited && m.sweepOf(d.Request.Buyer) > 0 {
		kind, detail = m.refuse(d.Request.Buyer, lines)
	}
	if kind == "" {
		o := &modelled{buyer: d.Request.Buyer, lines: lines, state: state}
		m.orders[d.Request.Key] = o
		m.move(o, -1, state)
		return o.reply(false)
	}
	if m.records && kind != isUnknownSKU {
		m.orders[d.Request.Key] = &modelled{buyer: d.Request.Buyer, lines: lines, state: inventory.Refused, limit: kind == isLimited}
	}
	r := replyOf(lines, inventory.Refused, false)
	r.Kind, r.Detail = kind, detail
	return r
}

// again answers an order under a key that is recorded.
func (m *model) again(o *modelled, buyer string, lines []inventory.Line) reply {
	if o.lines == nil {
		r := replyOf(lines, inventory.Cancelled, true)
		r.Kind = isCancelled
		return r
	}
	if o.buyer != buyer || !slices.Equal(unlimited(o.lines), unlimited(lines)) {
		return reply{Kind: isReused}
	}
	r := o.reply(true)
	switch {
	case r.State == inventory.Cancelled:
		r.Kind = isCancelled
	case r.State == inventory.Expired:
		r.Kind = isExpired
	case r.State == inventory.Refused && o.limit:
		r.Kind, r.Detail = isLimited, "as before"
	case r.State == inventory.Refused:
		r.Kind, r.Detail = isSoldOut, "as before"
	}
	return r
}

// refuse says why an order does not fit: a limit first, line by line, then an SKU that nobody knows, then all that are
// sold out.
func (m *model) refuse(buyer string, lines []inventory.Line) (kind, detail string) {
	for _, l := range lines {
		if used := m.used(l.SKU, buyer); l.Limit > 0 && used+l.Qty > l.Limit {
			return isLimited, l.SKU + ", used " + inWords(used)
		}
		if l.Unstocked {
			continue
		}
		b, known := m.stock[l.SKU]
		if !known {
			return isUnknownSKU, l.SKU
		}
		if l.Qty > b.Available {
			if kind != "" {
				detail += "; "
			}
			kind, detail = isSoldOut, detail+l.SKU+", left "+inWords(b.Available)
		}
	}
	return kind, detail
}

func inWords(n int64) string { return strconv.FormatInt(n, 10) }

// used is what counts against a buyer's limit.
func (m *model) used(sku, buyer string) (n int64) {
	for _, o := range m.orders {
		if o.buyer != buyer || o.state != inventory.Held && o.state != inventory.Sold {
			continue
		}
		for _, l := range o.lines {
			if l.SKU == sku && l.Limit > 0 {
				n += l.Qty
			}
		}
	}
	return n
}

// move takes what an order wants from the stock, or (1) gives it back.
func (m *model) move(o *modelled, sign int64, to inventory.State) {
	for _, l := range o.lines {
		if l.Unstocked {
			continue
		}
		b := m.stock[l.SKU]
		b.Available += sign * l.Qty
		if o.state == inventory.Held {
			b.Held -= sign * l.Qty
		} else {
			b.Sold -= sign * l.Qty
		}
	}
	o.state, o.due = to, 0
}

func (m *model) confirm(key string) reply {
	o, found := m.orders[key]
	if !found {
		return reply{Kind: isNotFound}
	}
	switch o.is() {
	case inventory.Held:
		for _, l := range o.lines {
			if !l.Unstocked {
				m.stock[l.SKU].Held -= l.Qty
				m.stock[l.SKU].Sold += l.Qty
			}
		}
		o.state = inventory.Sold
		return o.reply(false)
	case inventory.Sold:
		return o.reply(true)
	}
	return reply{Kind: kindOf(o.is())}
}

func (m *model) extend(key string) reply {
	o, found := m.orders[key]
	switch {
	case !found:
		return reply{Kind: isNotFound}
	case o.is() == inventory.Held:
		return o.reply(false)
	}
	return reply{Kind: kindOf(o.is())}
}

func (m *model) cancel(key string) reply {
	o, found := m.orders[key]
	if !found {
		m.orders[key] = &modelled{state: inventory.Cancelled}
		return m.orders[key].reply(false)
	}
	switch {
	case o.is() == inventory.Held:
		m.move(o, 1, inventory.Cancelled)
		return o.reply(false)
	case o.due > 0:
		m.move(o, 1, inventory.Expired)
		return o.reply(false)
	case o.state == inventory.Sold:
		return reply{Kind: isConfirmed}
	}
	return o.reply(true)
}

func (m *model) look(key string) reply {
	if o, found := m.orders[key]; found {
		return o.reply(false)
	}
	return reply{Kind: isNotFound}
}

// expire makes an order's time be up, and says which moment that is: 0: it is not held.
func (m *model) expire(key string) int64 {
	o := m.orders[key]
	if o == nil || o.is() != inventory.Held {
		return 0
	}
	m.moment++
	o.due = m.moment
	return o.due
}

// sweepOf sweeps what a buyer has held that is due.
func (m *model) sweepOf(buyer string) (swept int) {
	for _, o := range m.orders {
		if o.due > 0 && o.buyer == buyer {
			m.move(o, 1, inventory.Expired)
			swept++
		}
	}
	return swept
}

func (m *model) sweep(most int) reply {
	var due []*modelled
	for _, o := range m.orders {
		if o.due > 0 {
			due = append(due, o)
		}
	}
	slices.SortFunc(due, func(a, b *modelled) int { return cmp.Compare(a.due, b.due) })
	due = due[:min(most, len(due))]
	for _, o := range due {
		m.move(o, 1, inventory.Expired)
	}
	return reply{Qty: int64(len(due))}
}

func (m *model) restock(a inventory.Adjustment) reply {
	if was, found := m.changes[a.ID]; found && was != a {
		return reply{Kind: isReused}
	} else if found {
		return reply{Replayed: true}
	}
	b, known := m.stock[a.SKU]
	switch {
	case !known && a.Delta < 0:
		return reply{Kind: isUnknownSKU, Detail: a.SKU}
	case known && b.Available+a.Delta < 0:
		return reply{Kind: isSoldOut, Detail: a.SKU + ", left " + inWords(b.Available)}
	case !known:
		b = &inventory.Balance{SKU: a.SKU}
		m.stock[a.SKU] = b
	}
	b.Available += a.Delta
	b.Restocked += a.Delta
	m.changes[a.ID] = a
	return reply{}
}

// books are the balances, sorted as a Store has them.
func (m *model) books() (all []inventory.Balance) {
	for _, b := range m.stock {
		all = append(all, *b)
	}
	slices.SortFunc(all, func(a, b inventory.Balance) int { return strings.Compare(a.SKU, b.SKU) })
	return all
}
