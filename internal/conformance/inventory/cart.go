package inventory

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/inventory"
)

func cartOf(key string, lines ...inventory.Line) op {
	return op{What: toCart, Request: inventory.Request{Key: key, Buyer: "buyer of " + key}, Lines: lines}
}

// aCartIsSoldWholeOrNotAtAll also adds up lines of one SKU, and is answered again as before.
func aCartIsSoldWholeOrNotAtAll(t *testing.T, s *env) {
	s.keepsBooks(t)
	s.stock(t, "a", 5)
	s.stock(t, "b", 5)
	unstocked := inventory.Line{SKU: "gift", Qty: 1, Unstocked: true}
	whole := cartOf("whole", inventory.Line{SKU: "b", Qty: 2}, unstocked, inventory.Line{SKU: "a", Qty: 1}, inventory.Line{SKU: "b", Qty: 1})
	lines := []inventory.Line{{SKU: "a", Qty: 1}, {SKU: "b", Qty: 3}, unstocked}
	s.wants(t, whole, reply{State: inventory.Sold, Lines: lines})
	s.wants(t, whole, reply{State: inventory.Sold, Lines: lines, Replayed: true})
	s.wants(t, onKey(toLookUp, "whole"), reply{State: inventory.Sold, Lines: lines})
	s.wants(t, onKey(toConfirm, "whole"), reply{State: inventory.Sold, Lines: lines, Replayed: true})
	s.wants(t, onKey(toCancel, "whole"), reply{Kind: isConfirmed})
	s.wantsBooks(t, "a", 4, 0, 1)
	s.wantsBooks(t, "b", 2, 0, 3)
	for kind, lines := range map[string][]inventory.Line{
		isSoldOut:    {{SKU: "a", Qty: 1}, {SKU: "b", Qty: 3}},
		isUnknownSKU: {{SKU: "a", Qty: 1}, {SKU: "nonsense", Qty: 3}},
		isLimited:    {{SKU: "a", Qty: 1}, {SKU: "b", Qty: 2, Limit: 1}},
	} {
		d := cartOf("refused: "+kind, lines...)
		detail := map[string]string{isSoldOut: "b, left 2", isUnknownSKU: "nonsense", isLimited: "b, used 0"}[kind]
		s.wants(t, d, reply{State: inventory.Refused, Lines: unlimited(lines), Kind: kind, Detail: detail})
		s.wants(t, onKey(toLookUp, d.Request.Key), reply{Kind: isNotFound})
	}
	short := []inventory.Line{{SKU: "a", Qty: 9}, {SKU: "b", Qty: 3}, unstocked}
	s.wants(t, cartOf("two are short", short...), reply{State: inventory.Refused, Lines: short, Kind: isSoldOut, Detail: "a, left 4; b, left 2"})
	s.wantsBooks(t, "a", 4, 0, 1)
	kept := cartOf("kept", inventory.Line{SKU: "b", Qty: 2}, inventory.Line{SKU: "a", Qty: 2, Limit: 2}, unstocked)
	kept.Request.Hold = time.Hour
	lines = []inventory.Line{{SKU: "a", Qty: 2}, {SKU: "b", Qty: 2}, unstocked}
	s.wants(t, kept, reply{State: inventory.Held, Lines: lines, Ends: true})
	s.wantsBooks(t, "b", 0, 2, 3)
	s.wants(t, onKey(toCancel, "kept"), reply{State: inventory.Cancelled, Lines: lines})
	s.wantsBooks(t, "a", 4, 0, 1)
	kept.Request.Key = "due"
	s.wants(t, kept, reply{State: inventory.Held, Lines: lines, Ends: true})
	s.isDue(t, "due")
	s.wants(t, op{What: toSweep, Most: 5}, reply{Qty: 1})
	s.wantsBooks(t, "b", 2, 0, 3)
	s.balanced(t)
}

// aKeyIsOfOneOrderOrOneCart uses keys again for the other.
func aKeyIsOfOneOrderOrOneCart(t *testing.T, s *env) {
	s.stock(t, "a", 100)
	s.stock(t, "b", 100)
	a, b := inventory.Line{SKU: "a", Qty: 1}, inventory.Line{SKU: "b", Qty: 1}
	s.wants(t, cartOf("one line", a), reply{State: inventory.Sold, SKU: "a", Qty: 1})
	s.wants(t, op{What: toReserve, Request: order("one line", "a", 1)}, reply{State: inventory.Sold, SKU: "a", Qty: 1, Replayed: true})
	s.wants(t, op{What: toReserve, Request: order("an order", "a", 1)}, reply{State: inventory.Sold, SKU: "a", Qty: 1})
	s.wants(t, cartOf("a cart", a, b), reply{State: inventory.Sold, Lines: []inventory.Line{a, b}})
	reused := reply{Kind: isReused}
	more := b
	more.Qty = 2
	for _, d := range []op{
		cartOf("an order", a, b), cartOf("an order", b), cartOf("one line", a, a), cartOf("a cart", a), cartOf("a cart", a, more),
		cartOf("a cart", a, b, inventory.Line{SKU: "c", Qty: 1}), cartOf("a cart", a, inventory.Line{SKU: "b", Qty: 1, Unstocked: true}),
		{What: toReserve, Request: order("a cart", "a", 1)}, {What: toReserve, Request: order("a cart", "b", 2000)},
	} {
		s.wants(t, d, reused)
	}
	var both sync.WaitGroup // the same key as an order and as a cart, at once: one of them has it
	for i := range 40 {
		var errs [2]error
		var race sync.WaitGroup
		key := fmt.Sprintf("race %d", i)
		race.Go(func() { _, errs[0] = reserve(t.Context(), s.Store, order(key, "a", 1)) })
		race.Go(func() {
			_, errs[1] = s.ReserveAll(t.Context(), inventory.Cart{Key: key, Lines: []inventory.Line{b, a}})
		})
		both.Go(func() {
			race.Wait()
			if (errs[0] == nil) == (errs[1] == nil) || !errors.Is(errors.Join(errs[:]...), inventory.ErrKeyReused) {
				t.Errorf("%s: %v", key, errs)
			}
		})
	}
	both.Wait()
	s.sound(t)
}

// cartsCrosswise has carts of 8 of 20 SKUs come at once, from two Stores, each in an order of its own, and some beside orders
// for one of them: nobody is told of a deadlock.
func cartsCrosswise(t *testing.T, s *env) {
	s.keepsBooks(t)
	const skus, carts, most = 20, 64, 8
	random := rand.New(rand.NewPCG(7, 0))
	wanted := make(map[string]int64)
	var deeds []op
	for i := range carts {
		d := cartOf(fmt.Sprintf("cart %d", i))
		for _, n := range random.Perm(skus)[:most] {
			d.Lines = append(d.Lines, inventory.Line{SKU: fmt.Sprintf("sku-%d", n), Qty: 1 + random.Int64N(3), Limit: 100 * int64(i%2)})
		}
		if d.Request.Buyer = fmt.Sprint("buyer ", i%5); i%4 == 0 {
			d.Request.Hold = time.Hour
		}
		single := op{What: toReserve, Request: order(fmt.Sprintf("order %d", i), d.Lines[0].SKU, 1)}
		deeds = append(deeds, d, single)
		wanted[single.Request.SKU]++
		for _, l := range d.Lines {
			wanted[l.SKU] += l.Qty
		}
	}
	for n := range skus {
		s.stock(t, fmt.Sprintf("sku-%d", n), wanted[fmt.Sprintf("sku-%d", n)]+1)
	}
	s.doAtOnce(t, []*inventory.Store{s.Store, s.open(t, s.o)}, deeds, func(d op, r reply) {
		if r.Kind != "" || r.Replayed {
			t.Errorf("%s: %+v", d.Request.Key, r)
		}
	})
	var cancels []op
	for _, d := range deeds {
		if d.Request.Hold > 0 {
			cancels = append(cancels, onKey(toCancel, d.Request.Key))
		} else if d.What == toCart { // beside others that take what comes back
			d.Request.Key += " again"
			cancels = append(cancels, d)
		}
	}
	s.doAtOnce(t, []*inventory.Store{s.Store, s.open(t, s.o)}, cancels, func(d op, r reply) {
		if r.Kind != "" && r.Kind != isSoldOut || d.What == toCancel && r.State != inventory.Cancelled {
			t.Errorf("%s: %+v", d.Request.Key, r)
		}
	})
	s.balanced(t)
}

// refusesBadCarts sends nothing of them.
func refusesBadCarts(t *testing.T, s *env) {
	s.stock(t, "a", 10)
	line := inventory.Line{SKU: "a", Qty: 1}
	many := make([]inventory.Line, inventory.MaxLines+1)
	for i := range many {
		many[i] = inventory.Line{SKU: fmt.Sprint(i), Qty: 1}
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
		var invalid *inventory.InvalidError
		if res, err := s.ReserveAll(t.Context(), c); !errors.As(err, &invalid) || !cmp.Equal(res, inventory.Reservation{}) {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
	}
	for _, call := range []func() error{
		func() error { _, err := s.Confirm(t.Context(), ""); return err },
		func() error { _, err := s.Cancel(t.Context(), "\xff"); return err },
		func() error { _, err := s.Extend(t.Context(), "a\x00", time.Hour); return err },
		func() error { _, err := s.Sweep(t.Context(), 0); return err },
		func() error { _, err := s.Sweep(t.Context(), 1<<20); return err },
		func() error { return s.RunSweeper(t.Context(), time.Millisecond) },
	} {
		if err := call(); !errors.Is(err, inventory.ErrInvalid) {
			t.Error(err)
		}
	}
	if n := s.count(t, "SELECT count(*) FROM dblock_reservation"); n != 0 {
		t.Errorf("%d rows were written", n)
	}
}

// aLoneCartWaitsForItsRows has somebody else's transaction hold one of them: nobody is kept waiting by the cart, so that it is not refused.
func aLoneCartWaitsForItsRows(t *testing.T, s *env) {
	s.stock(t, "a", 10)
	s.stock(t, "b", 10)
	letGo := s.hold(t, s.Store, "b")
	answer := make(chan error, 1)
	go func() {
		_, err := s.ReserveAll(t.Context(), inventory.Cart{Key: "k", Lines: []inventory.Line{{SKU: "a", Qty: 1}, {SKU: "b", Qty: 1}}})
		answer <- err
	}()
	other := s.open(t, s.o)
	for i := range 50 {
		if _, err := other.Lookup(t.Context(), fmt.Sprint(i)); !errors.Is(err, inventory.ErrNotFound) {
			t.Error(err)
		}
	}
	select {
	case err := <-answer:
		t.Errorf("it did not wait: %v", err)
		answer <- nil
	default:
	}
	letGo()
	if err := <-answer; err != nil {
		t.Error(err)
	}
	s.sound(t)
}

// cartsWeighTheirLines has carts of many lines at once: a statement of theirs carries as many lines as one of orders carries orders.
func cartsWeighTheirLines(t *testing.T, s *env) {
	const carts, skus, lines, most = 80, 60, 10, 40
	for _, sku := range named("sku", skus) {
		s.stock(t, sku, carts)
	}
	var mu sync.Mutex
	carried := make(map[int]int)
	o := s.o
	o.MaxBatch = most
	store := s.hooked(t, &faultconn.Dialer{}, o, func(_ context.Context, _ func(string) error, granted []inventory.Reservation) error {
		n := 0
		for _, r := range granted {
			n += len(r.Lines)
		}
		mu.Lock()
		defer mu.Unlock()
		carried[n]++
		return nil
	})
	var all sync.WaitGroup
	gate := make(chan struct{})
	for i := range carts {
		c := inventory.Cart{Key: fmt.Sprintf("cart-%d", i)}
		for _, n := range rand.Perm(skus)[:lines] {
			c.Lines = append(c.Lines, inventory.Line{SKU: fmt.Sprintf("sku-%d", n), Qty: 1})
		}
		all.Go(func() {
			<-gate
			if _, err := store.ReserveAll(t.Context(), c); err != nil {
				t.Error(err)
			}
		})
	}
	close(gate)
	all.Wait()
	for n := range carried {
		if n > most {
			t.Errorf("a statement carries %d lines, more than %d", n, most)
		}
	}
	if len(carried) < 2 {
		t.Errorf("no carts share a statement: this test shows nothing: %v", carried)
	}
	s.sound(t)
}

// aCrowdOfCartsIsSold has many carts at once that have SKUs in common: none of them is refused because of the others.
func aCrowdOfCartsIsSold(t *testing.T, s *env) {
	const carts, skus, lines = 256, 2000, 20
	var stock, ledger []string
	for _, sku := range named("sku", skus) {
		stock = append(stock, fmt.Sprintf("('%s', 0, %d)", sku, carts))
		ledger = append(ledger, fmt.Sprintf("('%s', '%s', %d)", sku, sku, carts))
	}
	s.exec(t, "INSERT INTO dblock_stock (sku, bucket, available) VALUES "+strings.Join(stock, ", "))
	s.exec(t, "INSERT INTO dblock_adjustment (adjustment_id, sku, delta) VALUES "+strings.Join(ledger, ", "))
	var all sync.WaitGroup
	gate := make(chan struct{})
	for i := range carts {
		c := inventory.Cart{Key: fmt.Sprintf("cart-%d", i)}
		for _, n := range rand.Perm(skus)[:lines] {
			c.Lines = append(c.Lines, inventory.Line{SKU: fmt.Sprintf("sku-%d", n), Qty: 1})
		}
		all.Go(func() {
			<-gate
			if _, err := s.ReserveAll(t.Context(), c); err != nil {
				t.Error(err)
			}
		})
	}
	close(gate)
	all.Wait()
	if n := s.count(t, "SELECT count(*) FROM dblock_reservation WHERE state = 2"); n != carts*lines {
		t.Errorf("%d lines are sold, want %d", n, carts*lines)
	}
	s.sound(t)
}
