package bench

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/dblock-go/dblock/inventory"
)

const (
	isolatedSKUs = 100
	hotSKU       = "hot"

	// isolatedConns is what a service gives a Store.
	isolatedConns = 8
)

func isolatedSales() []Scenario {
	open := func(changes bool) func(context.Context, *Env) (isolated, error) {
		return func(ctx context.Context, env *Env) (isolated, error) {
			s, err := newStore(ctx, env, inventory.Options{})
			if err != nil {
				return nil, err
			}
			if changes {
				return &isolatedChanges{store: s}, nil
			}
			return &isolatedOrders{store: s}, nil
		}
	}
	return append(
		isolationScenarios("sales", "orders of 100 SKUs", isolatedConns, open(false)),
		isolationScenarios("changes", "cancellations of orders of 100 SKUs", isolatedConns, open(true))...,
	)
}

// coldSKU is the one of operation i.
func coldSKU(i int) string { return "cold-" + strconv.Itoa(i%isolatedSKUs) }

// stockIsolated stocks what both kinds of work need. To stock it again changes nothing.
func stockIsolated(ctx context.Context, s *store) error {
	return atOnce(isolatedSKUs+1, func(i int) error {
		if i == isolatedSKUs {
			return s.Stock(ctx, hotSKU, endless)
		}
		return s.Stock(ctx, coldSKU(i), endless)
	})
}

// atOnce has 64 callers make n calls, and returns the first error.
func atOnce(n int, call func(i int) error) error {
	const callers = 64
	errs := make(chan error, callers)
	for c := range callers {
		go func() {
			for i := c; i < n; i += callers {
				if err := call(i); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	var first error
	for range callers {
		if err := <-errs; first == nil {
			first = err
		}
	}
	return first
}

const lockHotSKU = "SELECT sku FROM dblock_stock WHERE sku = '" + hotSKU + "' FOR UPDATE"

// isolatedOrders sells.
type isolatedOrders struct {
	*store
	round string
}

func (w *isolatedOrders) Begin(ctx context.Context, n, _ int) error {
	w.round = strconv.Itoa(n)
	return stockIsolated(ctx, w.store)
}

func (w *isolatedOrders) key(sku string, i int) string {
	return fmt.Sprintf("%s-%s-%09d", sku, w.round, i)
}

func (w *isolatedOrders) Do(ctx context.Context, i int) (<-chan time.Time, error) {
	return nil, w.Sell(ctx, w.key("cold", i), coldSKU(i), "buyer")
}

func (w *isolatedOrders) Crowd(ctx context.Context, i int) error {
	return w.Sell(ctx, w.key(hotSKU, i), hotSKU, "buyer")
}

func (*isolatedOrders) Lock() string { return lockHotSKU }
func (*isolatedOrders) End() error   { return nil }

// isolatedChanges cancels orders that were held before the round.
type isolatedChanges struct {
	*store
	round string
	held  int // of the neighbour; the last is cancelled again and again, which changes nothing
}

func (w *isolatedChanges) key(sku string, i int) string {
	return fmt.Sprintf("%s-%s-%09d", sku, w.round, i)
}

func (w *isolatedChanges) Begin(ctx context.Context, n, operations int) error {
	w.round, w.held = strconv.Itoa(n), 2*crowding*operations
	if err := stockIsolated(ctx, w.store); err != nil {
		return err
	}
	var reqs []inventory.Request
	for i := range 2*operations + 100 { // they come at random, and may be more than on average
		reqs = append(reqs, inventory.Request{Key: w.key("cold", i), SKU: coldSKU(i), Buyer: "buyer", Qty: 1, Hold: time.Hour})
	}
	for i := range w.held + 1 {
		reqs = append(reqs, inventory.Request{Key: w.key(hotSKU, i), SKU: hotSKU, Buyer: "buyer", Qty: 1, Hold: time.Hour})
	}
	return atOnce(len(reqs), func(i int) error {
		_, err := w.Reserve(ctx, reqs[i])
		return err
	})
}

func (w *isolatedChanges) Do(ctx context.Context, i int) (<-chan time.Time, error) {
	_, err := w.Cancel(ctx, w.key("cold", i))
	return nil, err
}

func (w *isolatedChanges) Crowd(ctx context.Context, i int) error {
	_, err := w.Cancel(ctx, w.key(hotSKU, min(i, w.held)))
	return err
}

func (*isolatedChanges) Lock() string { return lockHotSKU }
func (*isolatedChanges) End() error   { return nil }
