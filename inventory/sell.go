package inventory

import (
	"context"
	"slices"

	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// cautious is how many batches look up what is recorded after one ran into a key that was taken:
// replays come in crowds, and each would have its batch decided twice.
const cautious = 64

// sell decides a batch of the queue. Under Merge a lone order is tried in one statement first,
// which is all that a sale takes; under the other strategies that was done before.
func (s *Store) sell(ctx context.Context, reqs []Request, again bool) ([]answer, error) {
	scarce := slices.ContainsFunc(reqs, s.shortages.covers)
	lone := len(reqs) == 1
	return s.settle(ctx, reqs, attempt{
		outright:  lone && !scarce && s.o.Strategy == Merge,
		assumeNew: !lone && !scarce && !again && s.caution.Add(-1) < 0,
	})
}

// settle decides a batch with the stock locked and the books read, unless one order can be sold
// outright. Running it again is safe: what was committed is found recorded.
func (s *Store) settle(ctx context.Context, reqs []Request, first attempt) (answers []answer, err error) {
	err = s.retry(ctx, first, func(ctx context.Context, this attempt) (err error) {
		if this.outright {
			verdict, err := s.way(ctx, reqs[0].row(Sold))
			if err == nil && verdict == engine.Sold {
				answers = []answer{{Value: reqs[0].reservation(Sold)}}
				return nil
			}
			if err != nil && s.engine.Fault(err) != engine.Duplicate {
				return err
			}
		}
		answers, err = s.transact(ctx, reqs, this)
		if this.assumeNew && err != nil && s.engine.Fault(err) == engine.Duplicate {
			s.caution.Store(cautious)
		}
		return err
	})
	return answers, err
}

// transact decides a batch in one transaction. A batch of several SKUs passes over rows that are
// locked; one SKU alone waits for its row, as nobody else is kept waiting by it.
//
// In doubt, an attempt whose connection was lost may still be under way on the server. A refusal
// is recorded then, so that it can't sell after this one has refused. And every row is waited for:
// it may be the one who holds them, and who is passed over is asked again by a call that knows of
// no doubt and would say that nothing was written.
func (s *Store) transact(ctx context.Context, reqs []Request, this attempt) (answers []answer, err error) {
	skus, keys := contended(reqs)
	if this.assumeNew {
		keys = nil
	}
	m := mode{assumeNew: this.assumeNew, recordRefusals: s.o.RecordRefusals || this.doubt}
	err = s.engine.Transact(ctx, skus, keys, len(skus) == 1 || this.doubt, func(books engine.Books) (plan engine.Plan) {
		plan, answers = decide(reqs, books, m)
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
