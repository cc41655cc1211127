package inventory

import (
	"context"
	"slices"

	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// sell decides a batch of the queue. Under Merge a lone order is tried in one statement first,
// which is all that a sale takes; under Direct that was done before.
func (s *Store) sell(ctx context.Context, reqs []Request) ([]answer, error) {
	outright := len(reqs) == 1 && s.o.Strategy == Merge && !s.shortages.covers(reqs[0])
	return s.settle(ctx, reqs, attempt{outright: outright})
}

// settle decides a batch with the stock locked and the books read, unless one order can be sold
// outright. Running it again is safe: what was committed is found recorded.
func (s *Store) settle(ctx context.Context, reqs []Request, first attempt) (answers []answer, err error) {
	err = s.retry(ctx, first, func(ctx context.Context, this attempt) (err error) {
		if this.outright {
			sold, err := s.engine.SellOne(ctx, reqs[0].row(Sold), s.o.Timeout)
			if sold {
				answers = []answer{{Value: reqs[0].reservation(Sold)}}
				return nil
			}
			if err != nil && s.engine.Fault(err) != engine.Duplicate {
				return err
			}
		}
		answers, err = s.transact(ctx, reqs, this.doubt)
		return err
	})
	return answers, err
}

// transact decides a batch in one transaction. A batch of several SKUs passes over rows that are
// locked; one SKU alone waits for its row, as nobody else is kept waiting by it. In doubt a
// refusal is recorded: an attempt whose connection was lost may still be under way on the server,
// and must not sell after this one has refused.
func (s *Store) transact(ctx context.Context, reqs []Request, doubt bool) (answers []answer, err error) {
	skus, keys := contended(reqs)
	err = s.engine.Transact(ctx, skus, keys, len(skus) == 1, func(books engine.Books) (plan engine.Plan) {
		plan, answers = decide(reqs, books, s.o.RecordRefusals || doubt)
		s.shortages.note(reqs, answers, books)
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
