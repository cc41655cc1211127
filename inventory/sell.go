package inventory

import (
	"context"
	"slices"

	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// cautious is how many batches look up what is recorded after one ran into a key that was taken:
// replays come in crowds, and each would have its batch decided twice.
const cautious = 64

// sell decides a batch of the queue. Most are sold the short way, and where not all may be, they
// are decided one by one with the stock locked.
func (s *Store) sell(ctx context.Context, reqs []Request, again bool) ([]answer, error) {
	var first attempt
	there := s.seen.claim(reqs)
	defer s.seen.unclaim(reqs)
	lone := len(reqs) == 1
	switch {
	case there == none, !lone && s.caution.Add(-1) >= 0: // some are to be refused, or were sold before
	case s.mayGoTogether(reqs) && (there == enough || there == unknown && lone):
		first.outright = true
	default:
		first.assumeNew = !lone && !again
	}
	return s.settle(ctx, reqs, first)
}

// settle decides a batch with the stock locked and the books read, unless all of it can be sold
// outright. Running it again is safe: what was committed is found recorded.
func (s *Store) settle(ctx context.Context, reqs []Request, first attempt) (answers []answer, err error) {
	err = s.retry(ctx, first, func(ctx context.Context, this attempt) (err error) {
		if this.outright {
			sold, err := s.together(ctx, reqs)
			switch {
			case sold:
				answers = allSold(reqs)
				return nil
			case err != nil && s.engine.Fault(err) != fault.Duplicate:
				return err
			case err != nil && len(reqs) > 1:
				s.caution.Store(cautious)
			default:
				this.assumeNew = len(reqs) > 1 && err == nil
			}
		}
		answers, err = s.transact(ctx, reqs, this)
		if this.assumeNew && err != nil && s.engine.Fault(err) == fault.Duplicate {
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
		s.seen.noteAll(books, plan)
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
