package inventory

import (
	"context"

	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// direct sells one order in a statement of its own. What that does not settle is decided with the
// stock locked, and that is merged: refusals, which write nothing, need not queue for the row one
// by one.
func (s *Store) direct(ctx context.Context, r Request) (Reservation, error) {
	if err := s.slots.enter(ctx); err != nil {
		return Reservation{}, err
	}
	if s.shortages.covers(r) {
		s.slots.leave()
		return s.queue.Do(ctx, r)
	}
	sold, err := s.sellOne(ctx, r)
	s.slots.leave()
	if sold {
		return r.reservation(Sold), nil
	}
	if err == nil {
		return s.queue.Do(ctx, r)
	}
	switch fault := s.engine.Fault(err); fault {
	case engine.Retry, engine.Duplicate, engine.Unreachable:
		return s.queue.Do(ctx, r)
	case engine.Lost:
		answers, err := s.settle(ctx, []Request{r}, attempt{doubt: true})
		if err != nil {
			return Reservation{}, err
		}
		return answers[0].Value, answers[0].Err
	case engine.Busy:
		return Reservation{}, outOfTime(ctx, false, fault, err)
	default:
		return Reservation{}, err
	}
}

// sellOne bounds the statement and the wait for its connection: it holds a slot meanwhile, and a
// dead connection that nobody gives up on would keep that for ever.
func (s *Store) sellOne(ctx context.Context, r Request) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	return s.engine.SellOne(ctx, r.row(Sold))
}
