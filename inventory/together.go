package inventory

import (
	"cmp"
	"context"
	"slices"

	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// together sells the orders of a batch, of one SKU, in one statement: the short way, open while there is enough for all. Carefully
// it sells those that are new and within their limit, and says of the others that they were passed over; else all of them or none. No
// answers: nothing was sold.
func (s *Store) together(ctx context.Context, orders []order, carefully bool) ([]answer, error) {
	own := s.allotments.own.Load()
	if len(orders) == 1 && orders[0].Limit == 0 && (own == 0 || s.engine.Ways().Together == nil) {
		verdict, err := s.engine.Ways().Direct(ctx, orders[0].row())
		if err != nil || verdict != engine.Sold {
			return nil, err
		}
		return granted(orders, nil), nil
	}
	batch, distinct := ordersOf(orders)
	if !distinct {
		return nil, nil
	}
	batch.Bucket = own
	var verdict engine.Verdict
	var left int64
	var unsold []string
	var err error
	if carefully {
		verdict, unsold, left, err = s.engine.Ways().New(ctx, batch)
	} else {
		verdict, left, err = s.engine.Ways().Together(ctx, batch)
	}
	if err != nil || verdict != engine.Sold {
		return nil, err
	}
	if left >= 0 {
		s.seen.note(batch.SKU, left)
	}
	return granted(orders, unsold), nil
}

// mayGoTogether tells whether the engine has a statement for such a batch.
func (s *Store) mayGoTogether(orders []order) bool {
	first := orders[0]
	switch {
	case s.o.Strategy != Merge || s.engine.Hooked() || first.lines != nil || first.Unstocked:
		return false
	case len(orders) == 1 && first.Limit == 0:
		return true
	}
	return s.engine.Ways().Together != nil && alike(orders)
}

// alike tells that orders differ in nothing but who wants how much.
func alike(orders []order) bool {
	first := orders[0]
	for _, o := range orders {
		if o.SKU != first.SKU || o.Hold != first.Hold || o.Limit != first.Limit || o.lines != nil || o.Unstocked {
			return false
		}
	}
	return true
}

// ordersOf lists a batch of one SKU in the order of its keys; distinct is false where one of them
// stands there twice.
func ordersOf(batch []order) (o engine.Orders, distinct bool) {
	type place struct {
		key string
		i   int
	}
	places := make([]place, len(batch))
	for i, b := range batch {
		places[i] = place{b.Key, i}
	}
	slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.key, b.key) })
	first := &batch[0]
	o = engine.Orders{
		SKU: first.SKU, State: int16(first.state()), Hold: first.Hold, Limit: first.Limit,
		Keys: make([]string, len(batch)), Buyers: make([]string, len(batch)), Qtys: make([]int64, len(batch)),
	}
	for n, p := range places {
		if n > 0 && p.key == o.Keys[n-1] {
			return o, false
		}
		o.Keys[n], o.Buyers[n], o.Qtys[n] = p.key, batch[p.i].Buyer, batch[p.i].Qty
	}
	return o, true
}

// granted answers a batch of which all but a few were sold.
func granted(orders []order, unsold []string) []answer {
	passed := make(map[string]bool, len(unsold))
	for _, key := range unsold {
		passed[key] = true
	}
	answers := make([]answer, len(orders))
	for i := range orders {
		o := &orders[i]
		if passed[o.Key] {
			answers[i].Value.passed = true
			continue
		}
		answers[i].Value = outcome{State: o.state(), left: o.Hold}
	}
	return answers
}
