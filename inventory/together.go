package inventory

import (
	"cmp"
	"context"
	"slices"

	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// together sells all orders of a batch, of one SKU, in one statement, or none of them: the short
// way, open while there is enough for all.
func (s *Store) together(ctx context.Context, reqs []Request) (sold bool, err error) {
	if len(reqs) == 1 {
		verdict, err := s.engine.Ways().Direct(ctx, reqs[0].row(Sold))
		return err == nil && verdict == engine.Sold, err
	}
	orders, distinct := ordersOf(reqs)
	if !distinct {
		return false, nil
	}
	verdict, left, err := s.engine.Ways().Together(ctx, orders)
	if err != nil || verdict != engine.Sold {
		return false, err
	}
	s.seen.note(orders.SKU, left)
	return true, nil
}

// mayGoTogether tells whether the engine has a statement for such a batch.
func (s *Store) mayGoTogether(reqs []Request) bool {
	return s.o.Strategy == Merge && (len(reqs) == 1 || s.engine.Ways().Together != nil && oneSKU(reqs))
}

func oneSKU(reqs []Request) bool {
	for _, r := range reqs {
		if r.SKU != reqs[0].SKU {
			return false
		}
	}
	return true
}

// ordersOf lists a batch of one SKU in the order of its keys; distinct is false where one of them
// stands there twice.
func ordersOf(reqs []Request) (o engine.Orders, distinct bool) {
	type place struct {
		key string
		i   int
	}
	places := make([]place, len(reqs))
	for i, r := range reqs {
		places[i] = place{r.Key, i}
	}
	slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.key, b.key) })
	o = engine.Orders{
		SKU:  reqs[0].SKU,
		Keys: make([]string, len(reqs)), Buyers: make([]string, len(reqs)), Qtys: make([]int64, len(reqs)),
	}
	for n, p := range places {
		if n > 0 && p.key == o.Keys[n-1] {
			return o, false
		}
		o.Keys[n], o.Buyers[n], o.Qtys[n] = p.key, reqs[p.i].Buyer, reqs[p.i].Qty
	}
	return o, true
}

// allSold answers a batch that went through as a whole.
func allSold(reqs []Request) []answer {
	answers := make([]answer, len(reqs))
	for i := range answers {
		answers[i].Value.State = Sold
	}
	return answers
}
