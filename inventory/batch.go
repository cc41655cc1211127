package inventory

import (
	"cmp"
	"context"
	"slices"

	"github.com/dblock-go/dblock/internal/batch"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// sell decides a batch of the queue of sales.
func (s *seller) sell(ctx context.Context, orders []order, again bool) ([]result, error) {
	if waiting := s.hooks.waiting(orders); waiting > 0 && !s.waitsAside(ctx) {
		return s.sellAroundHooks(ctx, orders, again, waiting)
	}
	results, err := s.sellBatch(ctx, orders, again)
	switch {
	case isHookBusy(err) && len(orders) > 1 && s.caps.HooksWaitLong:
		return toKeyLanes(orders), nil // each half with the order that waits would wait as long again
	case isHookBusy(err) && len(orders) > 1 && batch.Key(ctx) == "":
		return toOwnLanes(orders), nil // some of them may wait for nothing
	}
	if len(orders) > 1 && meetsOpenKey(err) {
		return s.sellAroundOpenKeys(ctx, orders, again, err)
	}
	return results, err
}

func (s *seller) sellBatch(ctx context.Context, orders []order, again bool) ([]result, error) {
	switch lane := batch.Key(ctx); {
	case again, isKeyLane(lane):
		return s.sellBehind(ctx, orders, lane)
	case len(orders) == 1 && orders[0].open:
		return s.sellBehind(ctx, orders, orders[0].lane())
	}
	first := attempt{way: s.firstWay(ctx, orders), locks: lockNone, conflicts: ofBatch}
	if s.caps.Batches {
		first.locks = waitBriefly
	}
	results, err := s.settle(ctx, orders, first)
	results, err = unblocked(orders, results, err)
	if lane := batch.Key(ctx); err == nil && waitFor(results, lane) && batch.Yield(ctx) {
		results, err = s.settle(ctx, orders, attempt{lane: lane, conflicts: ofBatch})
		return unblocked(orders, results, err)
	}
	return results, err
}

// firstWay is how a batch is most likely decided in one go, from what the cache knows.
func (s *seller) firstWay(ctx context.Context, orders []order) way {
	single := len(orders) == 1
	replays := !single && s.cache.expectsReplays()
	there := s.cache.supply(orders)
	allots := s.o.Allotment > 0 && !s.caps.Hooked && isUniform(orders) && !orders[0].Unstocked
	if allots && there != enough && s.allotments.refill(driver.Briefly(ctx), orders[0].SKU, sum(orders)) {
		there = enough
	}
	switch {
	case there == none, slices.ContainsFunc(orders, func(o order) bool { return o.looked }):
		return lockAll // some are to be refused
	case allots && there == enough && !s.caps.Batches && !replays:
		return lockBucket
	case s.canSell(orders) && (there == enough || there == unknown && single):
		if replays || orders[0].Limit > 0 && (single || !areBuyersDistinct(orders)) {
			return sellNew
		}
		return sellAll
	case single, replays:
		return lockAll
	}
	return assumeNew
}

// canSell reports whether the driver has a statement that sells such a batch.
func (s *seller) canSell(orders []order) bool {
	switch {
	case s.direct != nil, s.caps.Hooked, orders[0].Unstocked:
		return false
	case s.caps.Batches:
		return isUniform(orders)
	}
	return len(orders) == 1 && orders[0].isPlain()
}

// isUniform reports that orders for one SKU differ in nothing but their keys, buyers and
// quantities.
func isUniform(orders []order) bool {
	first := orders[0]
	for _, o := range orders {
		if o.SKU != first.SKU || o.Hold != first.Hold || o.Limit != first.Limit || o.Unstocked != first.Unstocked || o.lines != nil {
			return false
		}
	}
	return true
}

// areBuyersDistinct reports that no order but one is of the same buyer, and none is over its limit
// by itself.
func areBuyersDistinct(orders []order) bool {
	buyers := make(map[string]bool, len(orders))
	for i := range orders {
		o := &orders[i]
		if buyers[o.Buyer] || o.Qty > o.Limit {
			return false
		}
		buyers[o.Buyer] = true
	}
	return true
}

// settle decides a batch, attempt by attempt. Running it again is safe: what was committed is found
// recorded.
func (s *seller) settle(ctx context.Context, orders []order, first attempt) (results []result, err error) {
	err = s.retry.do(ctx, first, func(ctx context.Context, this attempt) (err error) {
		if this.locks != waitForLane {
			ctx = driver.Briefly(ctx)
		}
		if this.conflicts == awaitKey {
			if err := s.await(ctx, &orders[0]); err != nil {
				return err
			}
		}
		for again := true; again; {
			results, err = s.try(ctx, orders, this)
			this, again = s.next(ctx, orders, this, results, err)
		}
		if err == nil {
			s.cache.noteRecorded(orders, results)
		}
		return err
	})
	return results, err
}

// try decides a batch in one way. Without results nothing was sold.
func (s *seller) try(ctx context.Context, orders []order, this attempt) ([]result, error) {
	if this.way == sellAll || this.way == sellNew {
		return s.sellAtOnce(ctx, orders, this.way)
	}
	return s.transact(ctx, orders, this)
}

// next is the attempt that follows at once on one that did not decide its batch, if there is one.
func (s *seller) next(ctx context.Context, orders []order, this attempt, results []result, err error) (attempt, bool) {
	if driver.IsKeyOpen(err) {
		return this, false
	}
	single := len(orders) == 1
	taken := err != nil && s.retry.class(err) == sqlerr.Duplicate // a key is
	if taken && !single && this.way != lockAll {
		s.cache.metReplays()
	}
	atOnce := this.way == sellAll || this.way == sellNew
	switch {
	case err != nil && (atOnce || this.locks != lockNone) && s.retry.blocks(ctx, err, this):
		this.way, this.locks, this.inOrder = lockAll, lockNone, false // this says what is locked
	case this.way == sellAll && taken && !single:
		this.way = sellNew
	case this.way == sellAll && err == nil && results == nil && !single:
		this.way = assumeNew
	case atOnce && (taken || err == nil && results == nil):
		this.way = lockAll
	case this.way == lockBucket && err == nil && single && (results[0].Alone || results[0].Value.passed):
		this.way = lockAll // it does not fit into the allotment: the rest may have more
	default:
		return this, false
	}
	return this, true
}

// sellAtOnce sells the orders of a batch in one round trip. It sells all of them; or else, and with
// sellNew, those that are new and within their limit, and says of the others that they were passed
// over. No results: nothing was sold.
func (s *seller) sellAtOnce(ctx context.Context, orders []order, way way) ([]result, error) {
	batch, distinct := ordersOf(orders)
	if !distinct {
		return nil, nil
	}
	if s.caps.Batches {
		batch.Bucket = s.allotments.number.Load()
	}
	batch.OnlyNew = way == sellNew
	sale, err := s.driver.Sell(ctx, batch)
	if err != nil || !sale.Sold {
		return nil, err
	}
	if sale.Left >= 0 {
		s.cache.noteLeft(batch.SKU, sale.Left)
	}
	return granted(orders, sale.Unsold), nil
}

// transact decides a batch in one transaction. It waits for the rows of one SKU alone, and passes
// over others that are locked.
//
// If an attempt is unresolved, it may still be under way on the server. A refusal is recorded then,
// so that it can't sell after this one has refused. And every row is waited for: that attempt may
// have locked it, and an order that is passed over is asked again by a call that does not know of
// the attempt and would say that nothing was written.
func (s *seller) transact(ctx context.Context, orders []order, this attempt) (results []result, err error) {
	ask := asked(orders)
	own := s.allotments.number.Load()
	ask.InOrder = this.inOrder
	ask.Wait = this.unresolved || len(ask.SKUs) <= 1 && this.locks != lockNone
	ask.Lingers = isStockLane(this.lane) && len(ask.SKUs) > 1 && !s.slow.has(orders, this.lane)
	ask.WaitFor, ask.WaitQuotas = this.lane, this.unresolved || isQuotaLane(this.lane)
	m := mode{recordRefusals: s.o.RecordRefusals, unresolved: this.unresolved}
	switch this.way {
	case assumeNew:
		m.assumeNew, ask.Keys = true, nil
	case lockBucket:
		m.assumeNew, ask.Keys, ask.Bucket = true, nil, own
	}
	if s.hooksBriefly.Add(-1) >= 0 {
		ctx = driver.HookBriefly(ctx)
	}
	reading := s.cache.begin()
	var soldOut []string
	err = s.driver.Transact(ctx, ask, func(books driver.Books) (plan driver.Plan) {
		plan, results = decide(orders, books, m)
		s.cache.noteBooks(books, plan, own)
		if ask.Bucket == 0 {
			soldOut = s.cache.soldOutBy(books, plan)
		}
		return plan
	})
	if err == nil {
		s.cache.noteSoldOut(reading, soldOut...)
	}
	if isHookBusy(err) {
		s.hooksBriefly.Store(cautious)
	}
	s.hooks.note(orders, isKeyLane(batch.Key(ctx)), err)
	return results, err
}

// asked lists what a batch has to know, sorted: the order in which rows are locked.
func asked(orders []order) (ask driver.ReadRequest) {
	ask.Units = make(map[string]int64)
	for i := range orders {
		o := &orders[i]
		ask.Keys = append(ask.Keys, o.Key)
		for _, l := range o.each() {
			if !l.Unstocked {
				ask.SKUs = append(ask.SKUs, l.SKU)
				ask.Units[l.SKU] += l.Qty
			}
			if l.Limit > 0 {
				ask.Quotas = append(ask.Quotas, driver.Quota{SKU: l.SKU, Buyer: o.Buyer})
			}
		}
	}
	slices.Sort(ask.SKUs)
	slices.Sort(ask.Keys)
	slices.SortFunc(ask.Quotas, byQuota)
	ask.SKUs, ask.Keys, ask.Quotas = slices.Compact(ask.SKUs), slices.Compact(ask.Keys), slices.Compact(ask.Quotas)
	return ask
}

// ordersOf lists a batch of one SKU in the order of its keys; distinct is false if one of them
// stands there twice.
func ordersOf(batch []order) (o driver.Orders, distinct bool) {
	places := make([]int, len(batch))
	for i := range places {
		places[i] = i
	}
	slices.SortFunc(places, func(a, b int) int { return cmp.Compare(batch[a].Key, batch[b].Key) })
	first := &batch[0]
	o = driver.Orders{
		SKU: first.SKU, State: int16(first.state()), Hold: first.Hold, Limit: first.Limit,
		Keys: make([]string, len(batch)), Buyers: make([]string, len(batch)), Qtys: make([]int64, len(batch)),
	}
	for n, i := range places {
		if n > 0 && batch[i].Key == o.Keys[n-1] {
			return o, false
		}
		o.Keys[n], o.Buyers[n], o.Qtys[n] = batch[i].Key, batch[i].Buyer, batch[i].Qty
	}
	return o, true
}

// granted answers a batch of which all but a few were sold.
func granted(orders []order, unsold []string) []result {
	passed := make(map[string]bool, len(unsold))
	for _, key := range unsold {
		passed[key] = true
	}
	results := make([]result, len(orders))
	for i := range orders {
		o := &orders[i]
		if passed[o.Key] {
			results[i].Value.passed = true
			continue
		}
		results[i].Value = outcome{State: o.state(), left: o.Hold}
	}
	return results
}

func sum(orders []order) (qty int64) {
	for i := range orders {
		qty += orders[i].Qty
	}
	return qty
}
