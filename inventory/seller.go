package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/batch"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// seller decides orders. An order passes from stage to stage until one of them decides it: see the
// package's documentation.
type seller struct {
	driver     driver.Driver
	caps       driver.Caps
	o          Options
	retry      *retrier
	cache      *skuCache
	allotments *allotments
	sweeper    *sweeper

	direct *orderQueue // one order a statement; nil without Options.Direct
	sales  *orderQueue // batches
	reads  *orderQueue // batches of orders that are answered without a lock, as it seems

	hooksBriefly atomic.Int64 // transactions yet whose hooks wait briefly; negative: none
	hooks        hookWaits
	slow         slowSKUs
}

type orderQueue = batch.Queue[order, outcome]

// directPatience is for which part of Options.Timeout an order waits to be sent by itself. Those
// before it may wait for a locked row, each as long as it may.
const directPatience = 8

func newSeller(d driver.Driver, o Options, r *retrier, c *skuCache, a *allotments, sw *sweeper) *seller {
	s := &seller{driver: d, caps: d.Caps(), o: o, retry: r, cache: c, allotments: a, sweeper: sw}
	o.MaxInFlight = s.inFlight(o.MaxInFlight)
	perSKU, inFlight := 1, o.MaxInFlight
	if s.caps.Batches { // the stock is locked last: a second statement writes its orders meanwhile
		perSKU = 2
	}
	if o.Direct {
		inFlight = s.inFlight(mergedInFlight) // Options.MaxInFlight is for those that are not merged
		s.direct = batch.New(batch.Options[order, outcome]{
			Run:         s.sellDirect,
			Key:         func(o order) string { return o.SKU },
			MaxBatch:    1,
			MaxQueue:    o.MaxQueue,
			MaxInFlight: o.MaxInFlight,
			PerKey:      directPerSKU,
		})
	}
	s.sales = s.newQueue(s.sell, perSKU, inFlight, (*order).stock)
	s.reads = s.newQueue(s.readBatch, 1, inFlight, func(*order) []string { return nil })
	return s
}

func (s *seller) newQueue(run func(context.Context, []order, bool) ([]result, error), perSKU, inFlight int, others func(*order) []string) *orderQueue {
	return batch.New(batch.Options[order, outcome]{
		Run:         run,
		Key:         func(o order) string { return o.lane() },
		Others:      func(o order) []string { return others(&o) },
		Common:      cartLane,
		Classify:    s.retry.classOfBatch,
		Blocked:     isBlocked,
		Weight:      func(o order) int { return max(1, len(o.lines)) },
		MaxWeight:   s.o.MaxBatch,
		MaxBatch:    s.o.MaxBatch,
		MaxQueue:    s.o.MaxQueue,
		MaxInFlight: inFlight,
		PerKey:      perSKU,
		Waiters:     s.waiters(),
		MaxWait:     s.o.Timeout,
		Name:        laneName,
	})
}

// waiters is how many statements may wait for orders apart. Half of the pool is left to others.
func (s *seller) waiters() int {
	switch n := s.caps.Connections; {
	case n == 0:
		return maxWaiters
	case s.caps.Hooked:
		return min(maxWaiters, (n-1)/2)
	default:
		return min(maxWaiters, n/2)
	}
}

// inFlight is how many other statements may run at once. Where there is a hook, a connection is
// left for what it reads by the host's pool.
func (s *seller) inFlight(most int) int {
	if n := s.caps.Connections; n > 0 && s.caps.Hooked {
		return max(1, min(most, n-1-s.waiters()))
	}
	return most
}

func (s *seller) close(ctx context.Context) error {
	err := errors.Join(s.sales.Close(ctx), s.reads.Close(ctx))
	if s.direct != nil {
		err = errors.Join(s.direct.Close(ctx), err)
	}
	return err
}

// reserve has an order decided. One that is refused for its limit is decided again once its buyer's
// expired holds were swept.
func (s *seller) reserve(ctx context.Context, o order) (Reservation, error) {
	began := time.Now()
	got, err := s.decide(ctx, o)
	if isOverLimit(err) {
		got, err = s.decideSwept(ctx, o, got, err)
	}
	if err != nil && got.State == 0 {
		err = s.retry.explain(err, fmt.Sprintf("order %q", o.Key))
	}
	return o.reservation(got, began), err
}

// decide sends an order through the stages. What the cache says of it leaves some of them out.
func (s *seller) decide(ctx context.Context, o order) (outcome, error) {
	o.open, o.behind = s.sales.IsBlocked(keyLane(o.Key)), s.lockedLimit(&o)
	if s.direct != nil && o.isPlain() && !s.caps.Hooked && !o.open && !s.seemsDecided(&o) {
		got, err := s.direct.DoWithin(ctx, o, s.o.Timeout/directPatience)
		if !got.passed && !errors.Is(err, batch.ErrNotInTime) {
			return got, err
		}
		o.open = got.open
	}
	if !s.seemsDecided(&o) {
		got, err := s.sales.Do(ctx, o)
		if !got.passed {
			return got, err
		}
	}
	if !s.records(&o) { // else a refusal is written
		got, err := s.reads.Do(ctx, o)
		if !got.passed {
			return got, err
		}
	}
	o.looked = true
	return s.sales.Do(ctx, o)
}

// lockedLimit returns the lane of a limit of an order, whose orders wait for a lock; empty: there
// is none. Another batch would have to find again that it is locked.
func (s *seller) lockedLimit(o *order) string {
	for _, l := range o.each() {
		if l.Limit == 0 {
			continue
		}
		if lane := quotaLane(driver.Quota{SKU: l.SKU, Buyer: o.Buyer}); s.sales.IsBlocked(lane) {
			return lane
		}
	}
	return ""
}

// seemsDecided reports that an order is recorded, over its limit or wants more than is left, as far
// as is known. One such order in the batch of a sale would have all others decided one by one.
func (s *seller) seemsDecided(o *order) bool {
	_, soldOut := s.cache.soldOut(o, time.Now())
	return soldOut || s.cache.isRecorded(o) || s.o.Allotment == 0 && s.cache.lacks(o)
}

// records reports that a refusal of an order is recorded.
func (s *seller) records(o *order) bool { return s.o.RecordRefusals || o.unresolved }

// limitTries bounds how often an order is decided that is refused for its limit while the buyer's
// use of it changes.
const limitTries = 4

var (
	errUnswept = errors.New("expired holds of its buyer count against the limit, and were not swept")
	errMoving  = errors.New("its buyer's use of the limit changed all the time")
)

// decideSwept decides an order once more that was refused for its limit. A hold that has expired
// counts against its buyer's limit until it is swept. Before that no refusal is recorded or
// returned: the order waits for rows of the hold that are locked, and fails if they stay so.
func (s *seller) decideSwept(ctx context.Context, o order, got outcome, refused error) (outcome, error) {
	for range limitTries {
		o.unresolved = o.unresolved || got.unresolved
		looked, err := got, refused
		if !looked.looked {
			looked, err = s.reads.Do(ctx, o)
		}
		switch {
		case isOverLimit(err):
			if _, busy, err := s.sweeper.expire(ctx, looked.due, s.o.Timeout); err != nil || busy != nil {
				return o.unknown(outcome{}, &ended{cmp.Or(err, busy), errUnswept})
			}
			if len(looked.due) == 0 && !s.records(&o) {
				return looked, err
			}
			o.swept = true
		case !looked.passed && (err != nil && looked.State == 0 || !s.records(&o)):
			return o.unknown(looked, err)
		}
		if got, refused = s.decide(ctx, o); o.swept || !isOverLimit(refused) {
			return o.unknown(got, refused)
		}
	}
	return o.unknown(outcome{}, &ended{dblock.ErrConflict, errMoving})
}

// unknown is what became of an order of which an attempt before may yet be committed. Only what is
// recorded says what became of it.
func (o *order) unknown(got outcome, err error) (outcome, error) {
	if o.unresolved && err != nil && got.State == 0 && !errors.Is(err, ErrKeyReused) {
		err = &ended{dblock.ErrOutcomeUnknown, err}
	}
	return got, err
}

// isOverLimit reports that an order was refused for its limit by what buyers have now. A hook's own
// refusal may wrap such an error of another order.
func isOverLimit(err error) bool {
	var limit *BuyerLimitError
	return errors.As(err, &limit) && !limit.Replayed && !errors.As(err, new(*driver.HookError))
}

// sellDirect sells one order by one conditional UPDATE. What that does not settle passes on, to be
// merged: refusals, which write nothing, need not queue for the row one by one.
func (s *seller) sellDirect(ctx context.Context, orders []order, _ bool) ([]result, error) {
	o := &orders[0]
	passed := []result{{Value: outcome{passed: true}}}
	if s.cache.lacks(o) || s.sales.IsBlocked(o.SKU) {
		return passed, nil
	}
	sale, err := s.sellOne(ctx, orders)
	if err == nil && sale.Sold {
		return granted(orders, nil), nil
	}
	if err == nil {
		return passed, nil
	}
	switch is := s.retry.class(err); is {
	case sqlerr.Retryable, sqlerr.Duplicate, sqlerr.Unavailable:
		passed[0].Value.open = driver.IsKeyOpen(err)
		return passed, nil
	case sqlerr.Unresolved:
		return s.settle(ctx, orders, attempt{unresolved: true})
	case sqlerr.Busy:
		if s.caps.Batches && ctx.Err() == nil {
			return passed, nil
		}
		return nil, outOfTime(ctx, false, is, err)
	}
	return nil, err
}

// sellOne waits no longer for the row than others usually have it. A server that can't bound that
// in milliseconds waits for a second.
func (s *seller) sellOne(ctx context.Context, orders []order) (driver.Sale, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	if s.caps.Batches {
		ctx = driver.Briefly(ctx)
	}
	batch, _ := ordersOf(orders)
	return s.driver.Sell(ctx, batch)
}
