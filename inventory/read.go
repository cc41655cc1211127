package inventory

import (
	"context"
	"slices"
	"time"

	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// dueScan is among how many lines of expired holds those of a buyer are looked for.
// No index finds them by buyer, as it would cost each sale.
const dueScan = 100_000

// readBatch answers a batch of orders that are recorded, over their buyer's limit or want more than
// is left. It passes over those that turn out to be neither, and locks nothing.
func (s *seller) readBatch(ctx context.Context, orders []order, _ bool) ([]result, error) {
	var books driver.Books
	var d decision
	var due expiredHolds
	var began reading
	ask := asked(orders)
	err := s.retry.do(ctx, attempt{}, func(ctx context.Context, _ attempt) error {
		due = expiredHolds{of: make(map[string]bool), keys: make(map[driver.Quota][]string)}
		for buyers := s.cache.overLimit(orders); ; {
			err := due.read(buyers, func(buyers []string) ([]driver.Due, error) { return s.driver.Due(ctx, buyers, dueScan) })
			if err != nil {
				return err
			}
			began = s.cache.begin()
			if books, err = s.driver.Read(ctx, ask); err != nil {
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
	s.cache.noteUsed(books.Used)
	s.cache.noteSoldOut(began, s.cache.soldOutBy(books, driver.Plan{})...)
	results := make([]result, len(orders))
	for i := range orders {
		var final bool
		if results[i], final = s.resultOf(&orders[i], d); !final {
			results[i].Value.passed = true
		} else if isOverLimit(results[i].Err) {
			results[i].Value.looked = true
			if len(due.keys) > 0 {
				results[i].Value.due = due.against(asked(orders[i : i+1]).Quotas)
			}
		}
	}
	s.cache.noteRecorded(orders, results)
	return results, nil
}

// resultOf answers an order by what is recorded, used and left. What others of its batch ask for is
// no part of it: whether they get it is yet to be decided.
func (s *seller) resultOf(o *order, d decision) (a result, final bool) {
	if rows, recorded := d.books.Recorded[o.Key]; recorded {
		return replay(o, rows), true
	}
	_, refused := d.refuse(o)
	if l, sold := s.cache.soldOut(o, time.Now()); sold && !isOverLimit(refused) {
		refused = &SoldOutError{Key: o.Key, SKU: l.SKU, Wanted: l.Qty, Cached: true}
	}
	return result{Value: outcome{State: ReservationRefused}, Err: refused}, refused != nil
}

// unswept lists the buyers whose orders are over their limit, and whose expired holds were not read
// before that was found. Others may have swept those meanwhile: the orders have to be looked at
// again.
func (s *seller) unswept(orders []order, d decision, due expiredHolds) (buyers []string) {
	for i := range orders {
		if a, _ := s.resultOf(&orders[i], d); isOverLimit(a.Err) && !due.of[orders[i].Buyer] {
			buyers = append(buyers, orders[i].Buyer)
		}
	}
	return buyers
}

// expiredHolds are keys of expired holds, by the limits against which they count.
type expiredHolds struct {
	of   map[string]bool // the buyers whose holds were read
	keys map[driver.Quota][]string
}

// read adds the expired holds of some buyers.
func (h expiredHolds) read(buyers []string, due func(buyers []string) ([]driver.Due, error)) error {
	if len(buyers) == 0 {
		return nil
	}
	slices.Sort(buyers)
	buyers = slices.Compact(buyers)
	found, err := due(buyers)
	for _, buyer := range buyers {
		h.of[buyer] = true
	}
	for _, d := range found {
		h.keys[d.Quota] = append(h.keys[d.Quota], d.Key)
	}
	return err
}

// against returns the keys of the holds that count against some limits. To sweep others would not
// help, and may have to wait for stock that the order does not need.
func (h expiredHolds) against(limits []driver.Quota) []driver.Due {
	var keys []string
	for _, q := range limits {
		keys = append(keys, h.keys[q]...)
	}
	slices.Sort(keys)
	var due []driver.Due
	for _, key := range slices.Compact(keys) {
		due = append(due, driver.Due{Key: key})
	}
	return due
}
