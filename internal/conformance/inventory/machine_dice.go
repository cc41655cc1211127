package inventory

import (
	"fmt"
	"time"

	"github.com/dblock-go/dblock/inventory"
)

// What the machine's hands do next: orders of every kind, old ones again, keys with other contents, and all that can become
// of an order, in any order.

// next is the next op; expires: the time of what is held under its key is to be up instead.
func (h *hand) next() (d op, expires bool) {
	if h.stocked < handSKUs {
		h.stocked++
		return h.restock(h.stocked-1, 4+h.random.Int64N(8)), false
	}
	key := h.anyKey()
	switch dice := h.random.IntN(100); {
	case dice < 30:
		return h.order(), false
	case dice < 38:
		return h.again(), false
	case dice < 42:
		return h.reused(), false
	case dice < 54:
		return onKey(toConfirm, key), false
	case dice < 68:
		return onKey(toCancel, key), false
	case dice < 72:
		d = onKey(toExtend, key)
		d.Request.Hold = time.Hour + h.hold()
		return d, false
	case dice < 82:
		return onKey("", key), true
	case dice < 86:
		return onKey(toLookUp, key), false
	case dice < 90:
		return op{What: toSweep, Most: 1 + h.random.IntN(6)}, false
	}
	return h.restock(h.random.IntN(handSKUs), h.random.Int64N(9)-3), false
}

func onKey(what, key string) op { return op{What: what, Request: inventory.Request{Key: key}} }

// anyKey is mostly one of the last that were used, and now and then one that never was.
func (h *hand) anyKey() string {
	if len(h.keys) == 0 || h.random.IntN(25) == 0 {
		d := h.new()
		h.keys = append(h.keys, d)
		return d.Request.Key
	}
	return h.recent().Request.Key
}

func (h *hand) recent() op { return h.keys[len(h.keys)-1-h.random.IntN(min(6, len(h.keys)))] }

// order is a new one.
func (h *hand) order() op {
	d := h.new()
	h.keys = append(h.keys, d)
	return d
}

func (h *hand) new() op {
	d := op{What: toReserve, Request: inventory.Request{
		Key: fmt.Sprintf("%s, order %d", h.name, len(h.keys)), Buyer: fmt.Sprintf("%s, buyer %d", h.name, h.random.IntN(3)), Hold: h.hold(),
	}}
	l := h.line()
	d.Request.SKU, d.Request.Qty, d.Request.Limit, d.Request.Unstocked = l.SKU, l.Qty, l.Limit, l.Unstocked
	if h.random.IntN(3) == 0 {
		d.What = toCart
		d.Lines = h.lines()
		d.Request.SKU, d.Request.Qty, d.Request.Limit, d.Request.Unstocked = "", 0, 0, false
	}
	return d
}

// hold is mostly so long that nothing expires by itself; a quarter is sold at once.
func (h *hand) hold() time.Duration { return time.Duration(h.random.IntN(4)) * time.Hour }

func (h *hand) line() inventory.Line {
	l := inventory.Line{SKU: fmt.Sprintf("%s, SKU %d", h.name, h.random.IntN(handSKUs)), Qty: 1 + h.random.Int64N(3)*h.random.Int64N(2)}
	l.Limit = []int64{0, 0, 0, 1, 3, 5}[h.random.IntN(6)]
	switch h.random.IntN(30) {
	case 0:
		l.SKU = h.name + ", never heard of"
	case 1, 2, 3:
		l.SKU, l.Unstocked = h.name+", coupon", true
	}
	return l
}

// lines are those of a cart; the same SKU stands there twice now and then.
func (h *hand) lines() (lines []inventory.Line) {
	for range 1 + h.random.IntN(4) {
		l := h.line()
		for _, other := range lines {
			if other.SKU == l.SKU { // as lines of one SKU must have
				l.Limit = other.Limit
			}
		}
		lines = append(lines, l)
	}
	return lines
}

// again is an order that was sent before. How long it is held, and its limit, may be others: they are not what makes it
// the same.
func (h *hand) again() op {
	if len(h.keys) == 0 {
		return h.order()
	}
	d := h.recent()
	if h.random.IntN(2) == 0 && d.What == toReserve {
		d.Request.Hold, d.Request.Limit = h.hold(), h.random.Int64N(4)
	}
	return d
}

// reused is a key that was sent before, with what another order would have.
func (h *hand) reused() op {
	if len(h.keys) == 0 {
		return h.order()
	}
	d := h.new()
	d.Request.Key = h.recent().Request.Key
	return d
}

// restock sends an old change again now and then.
func (h *hand) restock(sku int, delta int64) op {
	h.changes++
	return op{What: toRestock, Adjustment: inventory.Adjustment{
		ID:  fmt.Sprintf("%s, change %d", h.name, h.changes-1-h.random.IntN(min(2, h.changes))),
		SKU: fmt.Sprintf("%s, SKU %d", h.name, sku), Delta: delta,
	}}
}
