package inventory

import (
	"context"
	"fmt"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// outright sells one order in a transaction of its own, as every strategy but Merge does. What that
// does not settle is decided with the stock locked, and that is merged: refusals, which write
// nothing, need not queue for the row one by one.
func (s *Store) outright(ctx context.Context, o order) (outcome, error) {
	if s.engine.Hooked() || o.lines != nil || o.Limit > 0 || o.Unstocked { // none of the ways can do that
		return s.merged(ctx, o)
	}
	leave, err := s.slot(ctx, o.SKU)
	if err != nil {
		return outcome{}, err
	}
	if s.seen.tooFew(o.Request) || s.queue.IsBlocked(o.SKU) {
		leave()
		return s.merged(ctx, o)
	}
	verdict, err := s.sellOne(ctx, o.Request)
	leave()
	if err == nil {
		switch verdict {
		case engine.Sold:
			return outcome{State: o.state(), left: o.Hold}, nil
		case engine.Taken:
			return outcome{}, outOfTime(ctx, false, fault.Busy, &takenError{o.SKU})
		default:
			got, err := s.merged(ctx, o)
			if err == nil && !got.Replayed {
				s.ranDry(ctx, o.Request)
			}
			return got, err
		}
	}
	switch is := s.fault(err); is {
	case fault.Retry, fault.Duplicate, fault.Unreachable:
		o.open = engine.IsKeyOpen(err)
		return s.merged(ctx, o)
	case fault.Lost:
		answers, err := s.settle(ctx, []order{o}, attempt{doubt: true})
		if err != nil {
			return outcome{}, err
		}
		return answers[0].Value, answers[0].Err
	case fault.Busy:
		if s.waitsBriefly() && ctx.Err() == nil {
			return s.merged(ctx, o)
		}
		return outcome{}, outOfTime(ctx, false, is, err)
	default:
		return outcome{}, err
	}
}

// sellOne bounds the statement and the wait for its connection: it holds a slot meanwhile, and a
// dead connection that nobody gives up on would keep that for ever.
func (s *Store) sellOne(ctx context.Context, r Request) (engine.Verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	if s.waitsBriefly() {
		ctx = engine.Briefly(ctx)
	}
	return s.way(ctx, r.row())
}

// slot waits until an order may be sent.
func (s *Store) slot(ctx context.Context, sku string) (leave func(), err error) {
	leaveSKU, err := s.slots.enterFor(ctx, sku)
	if err != nil {
		return nil, err
	}
	if err := s.slots.enter(ctx); err != nil {
		leaveSKU()
		return nil, err
	}
	return func() { s.slots.leave(); leaveSKU() }, nil
}

// waitsBriefly tells that an order that is sold directly waits no longer for its row than others usually have it: then it goes into
// the queue. Where the server can't bound that in milliseconds it waits for a second.
func (s *Store) waitsBriefly() bool { return s.o.Strategy == Direct && s.perSKU() > 1 }

// wayOf returns how single orders are sold.
func (s *Store) wayOf(strategy Strategy) (engine.Sell, error) {
	ways := s.engine.Ways()
	way := ways.Direct // under Merge too, for a lone order
	switch strategy {
	case ForUpdate:
		way = s.forUpdate
	case NoWait:
		way = ways.NoWait
	case SkipLocked:
		way = fromAnyBucket(ways.SkipLocked, s.o.Buckets)
	case CAS:
		way = repeated(ways.CAS)
	case Advisory:
		way = ways.Advisory
	}
	if way == nil {
		return nil, fmt.Errorf("%w: Options.Strategy: there is no %v; take %v, which refuses buyers in the same way, or %v, which refuses none",
			dblock.ErrUnsupported, strategy, NoWait, Merge)
	}
	return way, nil
}

// takenError is what a caller is told who does not wait for others.
type takenError struct{ sku string }

func (e *takenError) Error() string {
	return fmt.Sprintf("another transaction holds the stock of %q, or was faster; some may be left, and the same order may be sent again", e.sku)
}
