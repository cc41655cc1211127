package inventory

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/inventory"
)

func cartOf(key string, lines ...inventory.Line) op {
	return op{What: toCart, Request: inventory.Request{Key: key, Buyer: "buyer of " + key}, Lines: lines}
}

// heldCart is a cart that is held for an hour.
func heldCart(key string, lines ...inventory.Line) op {
	d := cartOf(key, lines...)
	d.Request.Hold = time.Hour
	return d
}

// ACartIsSoldWholeOrNotAtAll also adds up lines of one SKU, and repeats a cart.
func (mergeTests) ACartIsSoldWholeOrNotAtAll(t *testing.T, s *env) {
	s.stock(t, "a", 5)
	s.stock(t, "b", 5)
	gift := inventory.Line{SKU: "gift", Qty: 1, Unstocked: true}
	b := func(qty int64) inventory.Line { return inventory.Line{SKU: "b", Qty: qty} }
	whole := cartOf("whole", b(2), gift, inventory.Line{SKU: "a", Qty: 1}, b(1))
	lines := []inventory.Line{{SKU: "a", Qty: 1}, {SKU: "b", Qty: 3}, gift}
	s.wants(t, whole, reply{State: inventory.ReservationSold, Lines: lines})
	s.wants(t, whole, reply{State: inventory.ReservationSold, Lines: lines, Replayed: true})
	s.wants(t, onKey(toLookUp, "whole"), reply{State: inventory.ReservationSold, Lines: lines})
	s.wants(t, onKey(toConfirm, "whole"), reply{State: inventory.ReservationSold, Lines: lines, Replayed: true})
	s.wants(t, onKey(toCancel, "whole"), reply{Kind: isConfirmed})
	s.wantsBooks(t, "a", 4, 0, 1)
	s.wantsBooks(t, "b", 2, 0, 3)
	for _, c := range []struct {
		kind, detail string
		lines        []inventory.Line
	}{
		{isSoldOut, "b, left 2", []inventory.Line{{SKU: "a", Qty: 1}, {SKU: "b", Qty: 3}}},
		{isSoldOut, "a, left 4; b, left 2", []inventory.Line{{SKU: "a", Qty: 9}, {SKU: "b", Qty: 3}, gift}},
		{isUnknownSKU, "nonsense", []inventory.Line{{SKU: "a", Qty: 1}, {SKU: "nonsense", Qty: 3}}},
		{isLimited, "b, used 0", []inventory.Line{{SKU: "a", Qty: 1}, {SKU: "b", Qty: 2, Limit: 1}}},
	} {
		refused := reply{State: inventory.ReservationRefused, Lines: unlimited(c.lines), Kind: c.kind, Detail: c.detail}
		s.wants(t, cartOf(c.detail, c.lines...), refused)
		s.wants(t, onKey(toLookUp, c.detail), reply{Kind: isNotFound})
	}
	s.wantsBooks(t, "a", 4, 0, 1)
	holds := func(key string) {
		t.Helper()
		cart := heldCart(key, b(2), inventory.Line{SKU: "a", Qty: 2, Limit: 2}, gift)
		lines = []inventory.Line{{SKU: "a", Qty: 2}, {SKU: "b", Qty: 2}, gift}
		s.wants(t, cart, reply{State: inventory.ReservationHeld, Lines: lines, Ends: true})
	}
	holds("kept")
	s.wantsBooks(t, "b", 0, 2, 3)
	s.wants(t, onKey(toCancel, "kept"), reply{State: inventory.ReservationCancelled, Lines: lines})
	s.wantsBooks(t, "a", 4, 0, 1)
	holds("due")
	s.isDue(t, "due")
	s.wants(t, op{What: toSweep, Most: 5}, reply{Qty: 1})
	s.wantsBooks(t, "b", 2, 0, 3)
	s.sound(t)
}

// AKeyIsOfOneOrderOrOneCart uses keys of orders for carts, and the reverse.
func (mergeTests) AKeyIsOfOneOrderOrOneCart(t *testing.T, s *env) {
	s.stock(t, "a", 100)
	s.stock(t, "b", 100)
	a, b := inventory.Line{SKU: "a", Qty: 1}, inventory.Line{SKU: "b", Qty: 1}
	orderOf := func(key, sku string, qty int64) op { return op{What: toReserve, Request: order(key, sku, qty)} }
	s.wants(t, cartOf("one line", a), reply{State: inventory.ReservationSold, SKU: "a", Qty: 1})
	s.wants(t, orderOf("one line", "a", 1), reply{State: inventory.ReservationSold, SKU: "a", Qty: 1, Replayed: true})
	s.wants(t, orderOf("an order", "a", 1), reply{State: inventory.ReservationSold, SKU: "a", Qty: 1})
	s.wants(t, cartOf("a cart", a, b), reply{State: inventory.ReservationSold, Lines: []inventory.Line{a, b}})
	for _, d := range []op{
		cartOf("an order", a, b), cartOf("an order", b), cartOf("one line", a, a), cartOf("a cart", a),
		cartOf("a cart", a, inventory.Line{SKU: "b", Qty: 2}), cartOf("a cart", a, b, inventory.Line{SKU: "c", Qty: 1}),
		cartOf("a cart", a, inventory.Line{SKU: "b", Qty: 1, Unstocked: true}),
		orderOf("a cart", "a", 1), orderOf("a cart", "b", 2000),
	} {
		s.wants(t, d, reply{Kind: isReused})
	}
	s.sound(t)
}

// RefusesBadCarts sends nothing of them.
func (mergeTests) RefusesBadCarts(t *testing.T, s *env) {
	s.stock(t, "a", 10)
	line := inventory.Line{SKU: "a", Qty: 1}
	var many []inventory.Line
	for _, sku := range named("sku", inventory.MaxLines+1) {
		many = append(many, inventory.Line{SKU: sku, Qty: 1})
	}
	for name, c := range map[string]inventory.Cart{
		"no lines":        {Key: "k"},
		"too many lines":  {Key: "k", Lines: many},
		"no key":          {Lines: []inventory.Line{line}},
		"no SKU":          {Key: "k", Lines: []inventory.Line{line, {Qty: 1}}},
		"no quantity":     {Key: "k", Lines: []inventory.Line{line, {SKU: "b"}}},
		"no buyer":        {Key: "k", Lines: []inventory.Line{{SKU: "a", Qty: 1, Limit: 1}}},
		"two limits":      {Key: "k", Buyer: "b", Lines: []inventory.Line{line, {SKU: "a", Qty: 1, Limit: 1}}},
		"with, without":   {Key: "k", Lines: []inventory.Line{line, {SKU: "a", Qty: 1, Unstocked: true}}},
		"too much of one": {Key: "k", Lines: []inventory.Line{line, {SKU: "a", Qty: inventory.MaxQty}}},
		"an odd hold":     {Key: "k", Hold: 1, Lines: []inventory.Line{line}},
	} {
		res, err := s.ReserveAll(t.Context(), c)
		assert.ErrorAs(t, err, new(*dblock.InvalidError), name)
		assert.Zero(t, res, name)
	}
	for name, err := range map[string]error{
		"confirm":       suite.Second(s.Confirm(t.Context(), "")),
		"cancel":        suite.Second(s.Cancel(t.Context(), "\xff")),
		"extend":        suite.Second(s.Extend(t.Context(), "a\x00", time.Hour)),
		"sweep none":    suite.Second(s.Sweep(t.Context(), 0)),
		"sweep 1 << 20": suite.Second(s.Sweep(t.Context(), 1<<20)),
		"run sweeper":   s.RunSweeper(t.Context(), time.Millisecond),
	} {
		assert.ErrorIs(t, err, dblock.ErrInvalid, name)
	}
	assert.Zero(t, s.Count(t, "SELECT count(*) FROM dblock_reservation"))
}

// ALoneCartWaitsForItsRows has another transaction hold one of them. The cart delays no other
// order, and so it is not refused.
func (mergeTests) ALoneCartWaitsForItsRows(t *testing.T, s *env) {
	s.stock(t, "a", 10)
	s.stock(t, "b", 10)
	release := s.lockSKUs(t, []string{"b"})
	ended := make(chan error, 1)
	go func() {
		cart := inventory.Cart{Key: "k", Lines: []inventory.Line{{SKU: "a", Qty: 1}, {SKU: "b", Qty: 1}}}
		ended <- suite.Second(s.ReserveAll(t.Context(), cart))
	}()
	other := s.open(t, s.o)
	for i := range 50 {
		assert.ErrorIs(t, suite.Second(other.Lookup(t.Context(), fmt.Sprint(i))), inventory.ErrNotFound)
	}
	assert.Empty(t, ended, "it waits")
	release()
	assert.NoError(t, suite.Wait(t, ended, "the cart"))
	s.sound(t)
}

// CartsWeighTheirLines has carts share statements: one carries as many lines as one of orders
// carries orders. None is refused because of others.
func (mergeTests) CartsWeighTheirLines(t *testing.T, s *env) {
	const carts, most = 80, 40
	skus := named("sku", 60)
	for _, sku := range skus {
		s.stock(t, sku, carts)
	}
	var statements, largest atomic.Int64
	o := s.o
	o.MaxBatch = most
	hook := func(_ context.Context, _ func(string) error, granted []inventory.Reservation) error {
		n := int64(0)
		for _, r := range granted {
			n += int64(len(r.Lines))
		}
		for was := largest.Load(); n > was && !largest.CompareAndSwap(was, n); was = largest.Load() {
		}
		statements.Add(1)
		return nil
	}
	store := s.hookedOn(t, s.DSN, &faultconn.Dialer{}, o, hook)
	suite.Crowd(carts, func(i int) {
		c := inventory.Cart{Key: fmt.Sprintf("cart-%d", i)}
		for _, n := range rand.Perm(len(skus))[:10] {
			c.Lines = append(c.Lines, inventory.Line{SKU: skus[n], Qty: 1})
		}
		assert.NoError(t, suite.Second(store.ReserveAll(t.Context(), c)))
	})
	assert.LessOrEqual(t, largest.Load(), int64(most), "lines in a statement")
	assert.Less(t, statements.Load(), int64(carts), "carts share statements")
	s.sound(t)
}

// AnArchiveJobLeavesCartsWhole runs the job of docs/inventory.md for one SKU of two, then for both.
func (mergeTests) AnArchiveJobLeavesCartsWhole(t *testing.T, s *env) {
	lines := []inventory.Line{{SKU: "frame", Qty: 1}, {SKU: "poster", Qty: 1}}
	sold := cartOf("sold", lines...)
	s.stock(t, "frame", 5)
	s.stock(t, "poster", 5)
	s.wants(t, sold, reply{State: inventory.ReservationSold, Lines: lines})
	s.wants(t, heldCart("held", lines...), reply{State: inventory.ReservationHeld, Lines: lines, Ends: true})
	blocks := strings.Split(string(suite.Must(os.ReadFile("../../docs/inventory.md"))(t)), "```sql\n")
	archive := func(of string) (inTheWay int64) {
		job := func(block string) string {
			return strings.ReplaceAll(strings.Split(block, ";\n```")[0], "'poster', 'frame'", of)
		}
		inTheWay = s.countf(t, "SELECT count(*) FROM (%s) b", job(blocks[len(blocks)-2]))
		for _, statement := range strings.Split(job(blocks[len(blocks)-1]), ";") {
			if inTheWay == 0 {
				s.Exec(t, statement)
			}
		}
		return inTheWay
	}
	assert.Equal(t, int64(3), archive("'frame'"), "the lines that are held, and the poster of the other cart")
	assert.Equal(t, int64(2), archive("'poster', 'frame'"), "the lines that are held")
	s.isDue(t, "held")
	s.wants(t, op{What: toSweep, Most: 5}, reply{Qty: 1})
	s.wants(t, sold, reply{State: inventory.ReservationSold, Lines: lines, Replayed: true})
	s.wantsBooks(t, "poster", 4, 0, 1)
	s.sound(t)
	assert.Zero(t, archive("'poster', 'frame'"))
	assert.Empty(t, suite.Must(s.Audit(t.Context()))(t))
}

// ACartWithoutItsFirstLineIsSwept deletes line 0 of a cart, which then expires.
func (mergeTests) ACartWithoutItsFirstLineIsSwept(t *testing.T, s *env) {
	s.stock(t, "a", 10)
	s.stock(t, "b", 10)
	cart := heldCart("cart", inventory.Line{SKU: "a", Qty: 1}, inventory.Line{SKU: "b", Qty: 2, Limit: 2})
	cart.Request.Buyer = "ann"
	s.wants(t, cart, reply{State: inventory.ReservationHeld, Lines: unlimited(cart.Lines), Ends: true})
	s.Exec(t, "DELETE FROM dblock_reservation WHERE line = 0")
	s.isDue(t, "cart")
	s.wants(t, op{What: toSweep, Most: 10}, reply{Qty: 1})
	s.wantsBooks(t, "b", 10, 0, 0)
	s.wants(t, op{What: toSweep, Most: 10}, reply{})
	assert.Zero(t, s.Count(t, "SELECT sum(used) FROM dblock_quota"))
}
