package inventory

import (
	"context"

	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// Orders that are recorded already, or over their buyer's limit, are told so without a lock, in batches of their own: in those of a
// sale they would have all others decided one by one. They are orders that such a batch has passed over, and those of which that is known
// already.

// look decides a batch of such orders. Those that turn out to be neither are decided with the stock locked.
func (s *Store) look(ctx context.Context, orders []order, _ bool) ([]answer, error) {
	if s.o.RecordRefusals {
		return s.settle(ctx, orders, attempt{wait: true})
	}
	var books engine.Books
	err := s.retry(ctx, attempt{}, func(ctx context.Context, _ attempt) (err error) {
		books, err = s.engine.Look(ctx, asked(orders))
		return err
	})
	if err != nil {
		return nil, err
	}
	s.known.noteUsed(books.Used)
	answers := make([]answer, len(orders))
	var rest []order
	var places []int
	for i := range orders {
		var final bool
		if answers[i], final = foregone(&orders[i], books); !final {
			rest, places = append(rest, orders[i]), append(places, i)
		}
	}
	s.known.noteAnswers(orders, answers)
	if len(rest) == 0 {
		return answers, nil
	}
	decided, err := s.settle(ctx, rest, attempt{wait: true})
	if err != nil {
		return nil, err
	}
	for n, i := range places {
		answers[i] = decided[n]
	}
	return answers, nil
}

// foregone answers an order by what is recorded alone. What others of its batch ask for is no part of it: whether they
// get it is yet to be decided.
func foregone(o *order, books engine.Books) (a answer, final bool) {
	if rows, recorded := books.Recorded[o.Key]; recorded {
		return replay(o, rows), true
	}
	for _, l := range o.each() {
		used := books.Used[engine.Quota{SKU: l.SKU, Buyer: o.Buyer}]
		if l.Limit > 0 && used+l.Qty > l.Limit {
			err := &LimitError{Key: o.Key, SKU: l.SKU, Buyer: o.Buyer, Wanted: l.Qty, Limit: l.Limit, Used: used}
			return answer{Value: outcome{State: Refused}, Err: err}, true
		}
	}
	return answer{}, false
}

// merged has an order decided in a batch. What is recorded, or over its limit, as far as is known, or is passed over in a sale, is looked at.
func (s *Store) merged(ctx context.Context, o order) (outcome, error) {
	if !s.known.foregone(&o) {
		got, err := s.queue.Do(ctx, o)
		if !got.passed {
			return got, err
		}
	}
	return s.looks.Do(ctx, o)
}
