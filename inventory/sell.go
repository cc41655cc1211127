package inventory

import (
	"context"
	"slices"

	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// sellAlone sells one order.
func (s *Store) sellAlone(ctx context.Context, r Request) (Reservation, error) {
	answers, err := s.sell(ctx, []Request{r})
	if err != nil {
		return Reservation{}, err
	}
	return answers[0].Value, answers[0].Err
}

// sell decides a batch. One order is tried in one statement first, which is all that a sale takes;
// what that statement does not explain, and every larger batch, is decided with the stock locked
// and the books read. Running it again is safe: what was committed is found recorded.
func (s *Store) sell(ctx context.Context, reqs []Request) (answers []answer, err error) {
	tryOne := len(reqs) == 1
	err = s.retry(ctx, func(ctx context.Context) error {
		if tryOne {
			tryOne = false
			sold, err := s.engine.SellOne(ctx, reqs[0].row(Sold))
			if sold {
				answers = []answer{{Value: reqs[0].reservation(Sold)}}
				return nil
			}
			if err != nil && s.engine.Fault(err) != engine.Duplicate {
				return err
			}
		}
		var err error
		answers, err = s.transact(ctx, reqs)
		return err
	})
	return answers, err
}

// transact decides a batch in one transaction. A batch of several SKUs passes over rows that are
// locked; one SKU alone waits for its row, as nobody else is kept waiting by it.
func (s *Store) transact(ctx context.Context, reqs []Request) (answers []answer, err error) {
	skus, keys := contended(reqs)
	err = s.engine.Transact(ctx, skus, keys, len(skus) == 1, func(books engine.Books) (plan engine.Plan) {
		plan, answers = decide(reqs, books, s.o.RecordRefusals)
		return plan
	})
	return answers, err
}

// contended lists the distinct SKUs and keys of a batch, sorted: the order in which rows are
// locked.
func contended(reqs []Request) (skus, keys []string) {
	for _, r := range reqs {
		skus = append(skus, r.SKU)
		keys = append(keys, r.Key)
	}
	slices.Sort(skus)
	slices.Sort(keys)
	return slices.Compact(skus), slices.Compact(keys)
}
