package inventory

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// A hold that has expired counts against its buyer's limit until it is swept. So an order that is refused for the limit has the buyer's
// expired holds swept, and is decided once more. Until then its refusal is not recorded.

// dueScan is among how many lines of expired holds those of a buyer are looked for.
// No index finds them by buyer, as it would cost each sale.
const dueScan = 100_000

// decidedAgain returns what becomes of an order that was decided, if it was refused for its limit and the buyer has such holds.
func (s *Store) decidedAgain(ctx context.Context, o order, got outcome, refused error) (outcome, error) {
	if !isOverLimit(refused) {
		return got, refused
	}
	looked, err := got, error(nil)
	if !looked.looked {
		looked, err = s.looks.Do(ctx, o)
		if isOverLimit(err) {
			err = nil
		}
	}
	due := s.without(looked.due)
	if err == nil {
		_, err = s.expire(ctx, due, s.o.Timeout) // what can't be swept goes on counting
	}
	if err != nil && ctx.Err() != nil { // whether it is over its limit was not found out
		return outcome{}, &ended{context.Cause(ctx), errors.New("the expired holds of its buyer were not swept: nothing was sold")}
	}
	o.swept = true
	if s.o.RecordRefusals || err == nil && (len(due) > 0 || looked.passed) {
		return s.decided(ctx, o)
	}
	return got, refused // whatever else the look says: this was decided
}

// without leaves out the keys whose sweep is postponed.
func (s *Store) without(keys []string) (due []driver.Due) {
	not := s.later.now()
	for _, key := range keys {
		if !not[key] {
			due = append(due, driver.Due{Key: key})
		}
	}
	return due
}

// isOverLimit tells that an order was refused for its limit by what buyers have now.
func isOverLimit(err error) bool {
	var limit *BuyerLimitError
	return errors.As(err, &limit) && !limit.Replayed
}

// unswept lists the buyers whose orders are over their limit, and whose expired holds were not read
// before that was found. Others may have swept those meanwhile: the orders have to be looked at again.
func (s *Store) unswept(orders []order, d decision, due expiredHolds) (buyers []string) {
	for i := range orders {
		buyer := orders[i].Buyer
		if due.of[buyer] {
			continue
		}
		if a, _ := s.foregone(&orders[i], d); isOverLimit(a.Err) {
			buyers = append(buyers, buyer)
		}
	}
	return buyers
}

// expiredHolds are keys of expired holds, by the limits against which they count.
type expiredHolds struct {
	of   map[string]bool // the buyers whose holds were read
	keys map[driver.Quota][]string
}

// against returns the keys of the holds that count against some limits. To sweep others would not help, and may have
// to wait for stock that the order does not need.
func (h expiredHolds) against(limits []driver.Quota) (keys []string) {
	for _, q := range limits {
		keys = append(keys, h.keys[q]...)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// readDue adds the expired holds of some buyers to due.
func (s *Store) readDue(ctx context.Context, buyers []string, due expiredHolds) error {
	if len(buyers) == 0 {
		return nil
	}
	slices.Sort(buyers)
	buyers = slices.Compact(buyers)
	found, err := s.driver.DueOf(ctx, buyers, dueScan)
	for _, buyer := range buyers {
		due.of[buyer] = true
	}
	maps.Copy(due.keys, found)
	return err
}
