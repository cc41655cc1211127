package inventory

import (
	"context"

	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// outright sells one order in a transaction of its own. What that
// does not settle is decided with the stock locked, and that is merged: refusals, which write
// nothing, need not queue for the row one by one.
func (s *Store) outright(ctx context.Context, o order) (outcome, error) {
	if s.driver.Hooked() || o.lines != nil || o.Limit > 0 || o.Unstocked { // Direct can't do that
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
		if verdict == driver.Sold {
			return outcome{State: o.state(), left: o.Hold}, nil
		}
		return s.merged(ctx, o)
	}
	switch is := s.classify(err); is {
	case sqlerr.Retryable, sqlerr.Duplicate, sqlerr.Unavailable:
		o.open = driver.IsKeyOpen(err)
		return s.merged(ctx, o)
	case sqlerr.Unresolved:
		answers, err := s.settle(ctx, []order{o}, attempt{doubt: true})
		if err != nil {
			return outcome{}, err
		}
		return answers[0].Value, answers[0].Err
	case sqlerr.Busy:
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
func (s *Store) sellOne(ctx context.Context, r Request) (driver.Verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	if s.waitsBriefly() {
		ctx = driver.Briefly(ctx)
	}
	return s.driver.Ways().Direct(ctx, r.row())
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

// waitsBriefly tells that an order that is sold directly waits no longer for its row than others
// usually have it: then it goes into the queue. If the server can't bound that in milliseconds it
// waits for a second.
func (s *Store) waitsBriefly() bool { return s.perSKU() > 1 }
