package inventory

import (
	"context"
	"errors"
	"slices"
)

// A hold that has expired counts against its buyer's limit until it is swept. So an order that is refused for the limit has the buyer's
// expired holds swept, and is decided once more. Those are looked for among as many expired holds as one sweep takes.

// decidedAgain returns what becomes of an order that was decided, if it was refused for its limit and the buyer has such holds.
func (s *Store) decidedAgain(ctx context.Context, o order, got outcome, refused error) (outcome, error) {
	if s.o.RecordRefusals || !isOverLimit(refused) {
		return got, refused
	}
	looked := got
	if !looked.looked {
		if looked, _ = s.looks.Do(ctx, o); !looked.looked && !looked.passed {
			return got, refused // whatever else it says: this was decided
		}
	}
	not := s.later.now()
	keys := slices.DeleteFunc(slices.Clone(looked.due), func(key string) bool { return not[key] })
	if len(keys) == 0 && !looked.passed {
		return got, refused
	}
	if _, err := s.expire(ctx, keys, s.o.Timeout); err != nil {
		return got, refused // what can't be swept goes on counting
	}
	return s.decided(ctx, o)
}

// isOverLimit tells that an order was refused for its limit by what buyers have now.
func isOverLimit(err error) bool {
	var limit *LimitError
	return errors.As(err, &limit) && !limit.Replayed
}

// dueOf returns what has expired of the holds of those whose orders are over their limit, by buyer.
func (s *Store) dueOf(ctx context.Context, orders []order, d decision) (map[string][]string, error) {
	var buyers []string
	for i := range orders {
		if a, _ := s.foregone(&orders[i], d); isOverLimit(a.Err) {
			buyers = append(buyers, orders[i].Buyer)
		}
	}
	if len(buyers) == 0 {
		return nil, nil
	}
	slices.Sort(buyers)
	return s.engine.DueOf(ctx, slices.Compact(buyers), sweepBatch)
}
