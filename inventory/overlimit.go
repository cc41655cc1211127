package inventory

import (
	"context"
	"errors"
	"slices"
)

// A hold that has expired counts against its buyer's limit until it is swept. So an order that is refused for the limit has the buyer's
// expired holds swept, and is decided once more. Until then its refusal is not recorded.

// dueScan is among how many expired holds those of a buyer are looked for. No index finds them by buyer, as it would cost each sale.
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
func (s *Store) without(due []string) []string {
	not := s.later.now()
	return slices.DeleteFunc(slices.Clone(due), func(key string) bool { return not[key] })
}

// isOverLimit tells that an order was refused for its limit by what buyers have now.
func isOverLimit(err error) bool {
	var limit *BuyerLimitError
	return errors.As(err, &limit) && !limit.Replayed
}

// unswept lists the buyers whose orders are over their limit, and whose expired holds were not read
// before that was found. Others may have swept those meanwhile: the orders have to be looked at again.
func (s *Store) unswept(orders []order, d decision, due map[string][]string) (buyers []string) {
	for i := range orders {
		buyer := orders[i].Buyer
		if _, read := due[buyer]; read {
			continue
		}
		if a, _ := s.foregone(&orders[i], d); isOverLimit(a.Err) {
			buyers = append(buyers, buyer)
		}
	}
	return buyers
}

// readDue adds the keys of the expired holds of some buyers to due, by buyer.
func (s *Store) readDue(ctx context.Context, buyers []string, due map[string][]string) error {
	if len(buyers) == 0 {
		return nil
	}
	slices.Sort(buyers)
	buyers = slices.Compact(buyers)
	found, err := s.engine.DueOf(ctx, buyers, dueScan)
	for _, buyer := range buyers {
		due[buyer] = found[buyer]
	}
	return err
}
