package inventory

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// Orders that are recorded, over their buyer's limit, or for an SKU that was sold out a moment ago are answered without a lock. They have
// batches of their own: in the batch of a sale, one of them would have all others decided one by one.

// look decides a batch of such orders, and passes over those that turn out to be neither. It locks nothing.
func (s *Store) look(ctx context.Context, orders []order, _ bool) ([]answer, error) {
	var books engine.Books
	var due map[string][]string
	err := s.retry(ctx, attempt{}, func(ctx context.Context, _ attempt) (err error) {
		if books, err = s.engine.Look(ctx, asked(orders)); err == nil {
			due, err = s.dueOf(ctx, orders, books)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	s.known.noteUsed(books.Used)
	answers := make([]answer, len(orders))
	for i := range orders {
		var final bool
		if answers[i], final = s.foregone(&orders[i], books); !final {
			answers[i].Value.passed = true
		} else if isOverLimit(answers[i].Err) {
			answers[i].Value.due, answers[i].Value.looked = due[orders[i].Buyer], true
		}
	}
	s.known.noteAnswers(orders, answers)
	return answers, nil
}

// foregone answers an order by what is recorded and by what is known to be sold out. What others of its batch ask for is no part
// of it: whether they get it is yet to be decided.
func (s *Store) foregone(o *order, books engine.Books) (a answer, final bool) {
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
	if l, sold := s.latched(o, time.Now()); sold {
		return answer{Value: outcome{State: Refused}, Err: &SoldOutError{Key: o.Key, SKU: l.SKU, Wanted: l.Qty, Latched: true}}, true
	}
	return answer{}, false
}

// merged has an order decided in a batch. What is recorded, or over its limit, as far as is known, or is passed over in a sale, is looked
// at.
func (s *Store) merged(ctx context.Context, o order) (outcome, error) {
	if !s.known.foregone(&o) {
		got, err := s.queue.Do(ctx, o)
		if !got.passed {
			return got, err
		}
	}
	return s.lookedAt(ctx, o)
}

// lookedAt has an order looked at, unless its refusal is to be recorded. What is not answered then is decided with the stock locked.
func (s *Store) lookedAt(ctx context.Context, o order) (outcome, error) {
	if !s.o.RecordRefusals {
		got, err := s.looks.Do(ctx, o)
		if !got.passed {
			return got, err
		}
	}
	o.looked = true
	return s.queue.Do(ctx, o)
}
