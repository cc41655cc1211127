package inventory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// together sells the orders of a batch, of one SKU, in one round trip: the short way, open while there is enough for all. It sells all of
// them; or else, and carefully at once, those that are new and within their limit, and says of the others that they were passed over.
// No answers: nothing was sold.
func (s *Store) together(ctx context.Context, orders []order, carefully bool) ([]answer, error) {
	if carefully && orders[0].Limit > 0 {
		return s.togetherWithin(ctx, orders)
	}
	return s.togetherAs(ctx, orders, carefully, &s.strangers)
}

// togetherAs takes buyers that this process does not know for new ones, unless strangers counts
// down.
func (s *Store) togetherAs(ctx context.Context, orders []order, carefully bool, strangers *atomic.Int64) ([]answer, error) {
	own := s.allotments.own.Load()
	if len(orders) == 1 && orders[0].Limit == 0 && (own == 0 || s.driver.Ways().Together == nil) {
		verdict, err := s.driver.Ways().Direct(ctx, orders[0].row())
		if err != nil || verdict != driver.Sold {
			return nil, err
		}
		return granted(orders, nil), nil
	}
	batch, distinct := ordersOf(orders)
	if !distinct {
		return nil, nil
	}
	batch.Bucket = own
	var takes driver.Takes
	if batch.Limit > 0 {
		takes = takesOf(orders)
	}
	if !carefully {
		verdict, err := s.all(ctx, batch, takes, strangers)
		switch {
		case err != nil && s.classify(err) == sqlerr.Duplicate:
			if len(orders) > 1 {
				s.caution.Store(cautious)
			}
		case err != nil || verdict == driver.TooFew:
			return nil, err
		case verdict == driver.Sold:
			return granted(orders, nil), nil
		case len(orders) > 1:
			s.caution.Store(cautious)
		}
	}
	unknown, _ := s.known.split(batch.SKU, takes)
	batch.Make = unknown.Buyers
	verdict, unsold, left, err := s.driver.Ways().New(ctx, batch)
	if err != nil || verdict != driver.Sold {
		return nil, err
	}
	if left >= 0 { // else none was new
		s.seen.note(batch.SKU, left)
	}
	return granted(orders, unsold), nil
}

// togetherWithin reads what buyers have used of their limits that this process does not know, and locks nothing. It passes over the orders
// that are over a limit then, and sells the others together. That takes less than to sell each buyer's orders under a condition.
func (s *Store) togetherWithin(ctx context.Context, orders []order) ([]answer, error) {
	var ask driver.Ask
	strangers, _ := s.known.split(orders[0].SKU, takesOf(orders))
	for _, buyer := range strangers.Buyers {
		ask.Quotas = append(ask.Quotas, driver.Quota{SKU: orders[0].SKU, Buyer: buyer})
	}
	if len(ask.Quotas) > 0 {
		books, err := s.driver.Look(ctx, ask)
		if err != nil {
			return nil, err
		}
		maps.DeleteFunc(books.Used, func(_ driver.Quota, used int64) bool { return used == 0 }) // they count as new
		s.known.noteUsed(books.Used)
	}
	var within []order
	answers := make([]answer, len(orders))
	for i := range orders {
		if o := &orders[i]; s.known.foregone(o) {
			answers[i].Value.passed = true
		} else {
			within = append(within, *o)
		}
	}
	if len(within) == 0 {
		return answers, nil
	}
	sold, err := s.togetherAs(ctx, within, false, &s.unused)
	if err != nil || sold == nil {
		return nil, err
	}
	for i := range answers { // a key may stand on both sides
		if !answers[i].Value.passed {
			answers[i], sold = sold[0], sold[1:]
		}
	}
	return answers, nil
}

// all sells all orders of a batch, or none.
func (s *Store) all(ctx context.Context, batch driver.Orders, takes driver.Takes, strangers *atomic.Int64) (driver.Verdict, error) {
	var unknown driver.Takes
	if batch.Limit > 0 {
		if slices.Max(takes.Units) > batch.Limit {
			return driver.OverLimit, nil
		}
		unknown, batch.More = s.known.split(batch.SKU, takes)
		if strangers.Add(-1) < 0 {
			batch.First = unknown
		} else {
			batch.Make, batch.More = unknown.Buyers, takes
		}
	}
	verdict, left, err := s.driver.Ways().Together(ctx, batch)
	if err == nil && verdict == driver.NotNew {
		strangers.Store(cautious)
		batch.Make, batch.First, batch.More = unknown.Buyers, driver.Takes{}, takes
		verdict, left, err = s.driver.Ways().Together(ctx, batch)
	}
	if err == nil && verdict == driver.Sold {
		s.seen.note(batch.SKU, left)
	}
	return verdict, err
}

// mayGoTogether tells whether the driver has a short way for such a batch.
func (s *Store) mayGoTogether(orders []order) bool {
	first := orders[0]
	switch {
	case s.o.Direct || s.driver.Hooked() || first.lines != nil || first.Unstocked:
		return false
	case len(orders) == 1 && first.Limit == 0:
		return true
	}
	return s.driver.Ways().Together != nil && alike(orders)
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

// ordersOf lists a batch of one SKU in the order of its keys; distinct is false if one of them
// stands there twice.
func ordersOf(batch []order) (o driver.Orders, distinct bool) {
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
	o = driver.Orders{
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

// takesOf adds up what each buyer takes.
func takesOf(batch []order) (all driver.Takes) {
	places := make([]int, len(batch))
	for i := range places {
		places[i] = i
	}
	slices.SortFunc(places, func(a, b int) int { return cmp.Compare(batch[a].Buyer, batch[b].Buyer) })
	all.Buyers, all.Units = make([]string, 0, len(batch)), make([]int64, 0, len(batch))
	for _, i := range places {
		if last := len(all.Buyers) - 1; last >= 0 && all.Buyers[last] == batch[i].Buyer {
			all.Units[last] += batch[i].Qty
			continue
		}
		all.Buyers, all.Units = append(all.Buyers, batch[i].Buyer), append(all.Units, batch[i].Qty)
	}
	return all
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
