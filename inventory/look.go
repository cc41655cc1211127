package inventory

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// An order that is recorded, is over its buyer's limit or wants more than is left is answered without a lock. Such orders have batches of
// their own: one of them in the batch of a sale would have all others decided one by one.

// look decides a batch of such orders, and passes over those that turn out to be neither. It locks nothing.
func (s *Store) look(ctx context.Context, orders []order, _ bool) ([]answer, error) {
	var books driver.Books
	var d decision
	due := expiredHolds{of: make(map[string]bool), keys: make(map[driver.Quota][]string)}
	ask := asked(orders)
	var p proofs
	err := s.retry(ctx, attempt{}, func(ctx context.Context, _ attempt) error {
		clear(due.of)
		clear(due.keys)
		for buyers := s.known.overLimit(orders); ; {
			err := s.readDue(ctx, buyers, due)
			if err != nil {
				return err
			}
			p = s.beforeProof(ask.SKUs)
			if books, err = s.driver.Look(ctx, ask); err != nil {
				return err
			}
			books.Skipped = func(string) bool { return false }
			d = newDecision(books, mode{})
			if buyers = s.unswept(orders, d, due); len(buyers) == 0 {
				return nil
			}
		}
	})
	if err != nil {
		return nil, err
	}
	s.known.noteUsed(books.Used)
	s.latch(books, driver.Plan{}, p)
	answers := make([]answer, len(orders))
	for i := range orders {
		var final bool
		if answers[i], final = s.foregone(&orders[i], d); !final {
			answers[i].Value.passed = true
		} else if isOverLimit(answers[i].Err) {
			answers[i].Value.looked = true
			if len(due.keys) > 0 {
				answers[i].Value.due = due.against(asked(orders[i : i+1]).Quotas)
			}
		}
	}
	s.known.noteAnswers(orders, answers)
	return answers, nil
}

// foregone answers an order by what is recorded, used and left. What others of its batch ask for is no part
// of it: whether they get it is yet to be decided.
func (s *Store) foregone(o *order, d decision) (a answer, final bool) {
	if rows, recorded := d.books.Recorded[o.Key]; recorded {
		return replay(o, rows), true
	}
	_, refused := d.refuse(o)
	if l, sold := s.latched(o, time.Now()); sold && !isOverLimit(refused) {
		refused = &SoldOutError{Key: o.Key, SKU: l.SKU, Wanted: l.Qty, Cached: true}
	}
	return answer{Value: outcome{State: ReservationRefused}, Err: refused}, refused != nil
}

// merged has an order decided in a batch. An order that is recorded, over its limit or too large, as far as is known, or that is passed over
// in a sale, is looked at.
func (s *Store) merged(ctx context.Context, o order) (outcome, error) {
	if !s.known.foregone(&o) && (s.o.Allotment > 0 || !s.seen.lacks(&o)) {
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
