package inventory

import (
	"errors"
	"testing"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/inventory"
)

// RunWith sells over connections with other settings than the usual: each gives the same answers.
// A setting is what is appended to the DSN's query.
func (e Inventory) RunWith(t *testing.T, settings map[string]string) {
	for name, setting := range settings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := e.env(t, inventory.Options{})
			s.dsn = suite.AppendQuery(s.dsn, setting)
			for _, strategy := range e.strategies() {
				t.Run(strategy.String(), func(t *testing.T) {
					s.o = small(strategy)
					s.o.MaxInFlight = min(s.o.MaxInFlight, 4) // each opens a connection, which takes longer than an order
					s.Store = s.open(t, s.o)
					s.sellsAsUsual(t, strategy.String())
				})
			}
		})
	}
}

// sellsAsUsual tries every answer that a Store can give, in small, from two Stores at once.
func (s *env) sellsAsUsual(t *testing.T, sku string) {
	s.stock(t, sku, 12)
	if replayed, err := s.Restock(t.Context(), inventory.Adjustment{ID: "stock of " + sku, SKU: sku, Delta: 12}); err != nil || !replayed {
		t.Errorf("a repeated restock: %v, %v", replayed, err)
	}
	other := s.open(t, s.o)
	elsewhere := make(chan []told)
	reqs := append(ordersOf(sku, 20, sku), ordersOf(sku+" unknown", 4, "nonsense")...)
	go func() { elsewhere <- crowd(t.Context(), other, reqs) }()
	sold := map[string]bool{}
	for _, a := range append(crowd(t.Context(), s.Store, reqs), <-elsewhere...) {
		switch {
		case a.err == nil:
			sold[a.req.Key] = true
		case a.req.SKU == sku && !errors.Is(a.err, inventory.ErrSoldOut),
			a.req.SKU != sku && !errors.Is(a.err, inventory.ErrUnknownSKU):
			t.Errorf("%s: %v", a.req.Key, a.err)
		}
	}
	if b := s.balance(t, sku); len(sold) != 12 || b.Sold != 12 || b.Available != 0 {
		t.Errorf("12 units, sold by two to 20 buyers each: %d were told so; %+v", len(sold), b)
	}
	for key := range sold {
		got, err := s.Lookup(t.Context(), key)
		if err != nil || got.State != inventory.Sold {
			t.Errorf("%+v, %v", got, err)
		}
		break
	}
	s.sound(t)
}
