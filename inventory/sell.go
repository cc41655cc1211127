package inventory

import (
	"context"
	"slices"

	"github.com/dblock-go/dblock/internal/merge"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// cautious is how many batches look up what is recorded after one ran into a key that was taken, or a limit:
// replays come in crowds, and each would have its batch decided twice.
const cautious = 64

// sell decides a batch of the queue.
func (s *Store) sell(ctx context.Context, orders []order, again bool) ([]answer, error) {
	answers, err := s.sellAll(ctx, orders, again)
	if len(orders) > 1 && meetsOpenKey(err) {
		return s.sellBesideOpenKeys(ctx, orders, again, err)
	}
	return answers, err
}

// sellAll decides a batch in one go. Most are sold the short way, and if not all may be, they
// are decided one by one with the stock locked.
func (s *Store) sellAll(ctx context.Context, orders []order, again bool) ([]answer, error) {
	switch lane := merge.Key(ctx); {
	case again, isBehindKey(lane):
		return s.sellBehind(ctx, orders, lane)
	case len(orders) == 1 && orders[0].open:
		return s.sellBehind(ctx, orders, orders[0].lane())
	}
	first := attempt{brief: true, free: s.perSKU() == 1}
	there := s.seen.claim(orders)
	defer s.seen.unclaim(orders)
	lone := len(orders) == 1
	caution := !lone && s.caution.Add(-1) >= 0
	if s.allots(orders) {
		if there != enough && s.refill(driver.Briefly(ctx), orders[0].SKU, sum(orders)) {
			there = enough
		}
		first.own = there == enough
	}
	switch {
	case there == none, anyLooked(orders): // some are to be refused
	case first.own && s.driver.Ways().Together == nil:
		first.assumeNew = !caution
	case s.mayGoTogether(orders) && (there == enough || there == unknown && lone):
		first.outright, first.carefully = true, caution
	default:
		first.assumeNew = !lone && !caution
	}
	answers, err := s.settle(ctx, orders, first)
	answers, err = unblocked(orders, answers, err)
	if behind := merge.Key(ctx); err == nil && waitFor(answers, behind) && merge.StandAside(ctx) {
		answers, err = s.settle(ctx, orders, attempt{behind: behind})
		return unblocked(orders, answers, err)
	}
	return answers, err
}

// settle decides a batch with the stock locked and the books read, unless all of it can be sold
// outright. Running it again is safe: what was committed is found recorded.
func (s *Store) settle(ctx context.Context, orders []order, first attempt) (answers []answer, err error) {
	first.shared = !first.awaits
	err = s.retry(ctx, first, func(ctx context.Context, this attempt) (err error) {
		if this.brief {
			ctx = driver.Briefly(ctx)
		}
		if this.awaits {
			if err := s.await(ctx, &orders[0]); err != nil {
				return err
			}
		}
		if this.outright {
			answers, err = s.together(ctx, orders, this.carefully)
			switch {
			case err == nil && answers != nil:
				s.known.noteAnswers(orders, answers)
				return nil
			case driver.IsKeyOpen(err):
				return err
			case err != nil && s.blocks(ctx, err, this):
				this.free = true
			case err != nil && s.classify(err) != sqlerr.Duplicate:
				return err
			case err != nil && len(orders) > 1:
				s.caution.Store(cautious)
			default:
				this.assumeNew = len(orders) > 1 && err == nil && !this.carefully
			}
		}
		answers, err = s.transact(ctx, orders, this)
		if err == nil && this.own && len(orders) == 1 && (answers[0].Alone || answers[0].Value.passed) { // it does not fit into the allotment: the rest may have more
			this.own, this.assumeNew = false, false
			answers, err = s.transact(ctx, orders, this)
		}
		if err != nil && !this.free && !driver.IsKeyOpen(err) && s.blocks(ctx, err, this) { // the next says what is locked
			this.free, this.assumeNew = true, false
			answers, err = s.transact(ctx, orders, this)
		}
		if this.assumeNew && err != nil && s.classify(err) == sqlerr.Duplicate {
			s.caution.Store(cautious)
		}
		if err == nil {
			s.known.noteAnswers(orders, answers)
		}
		return err
	})
	return answers, err
}

// transact decides a batch in one transaction. It waits for the rows of one SKU alone, and passes over others that are locked.
//
// In doubt, an attempt whose connection was lost may still be under way on the server. A refusal
// is recorded then, so that it can't sell after this one has refused. And every row is waited for:
// it may be the one who holds them, and who is passed over is asked again by a call that knows of
// no doubt and would say that nothing was written.
func (s *Store) transact(ctx context.Context, orders []order, this attempt) (answers []answer, err error) {
	ask := asked(orders)
	if this.own && !this.outright {
		ask.Own = s.allotments.own.Load()
	}
	ask.Wait = this.doubt || len(ask.SKUs) <= 1 && !this.free
	ask.WaitFor, ask.WaitQuotas = this.behind, this.doubt || isBehindQuota(this.behind)
	if this.assumeNew {
		ask.Keys = nil
	}
	m := mode{assumeNew: this.assumeNew || ask.Own != 0, recordRefusals: s.o.RecordRefusals || this.doubt, unswept: this.doubt}
	if s.hooksBriefly.Add(-1) >= 0 {
		ctx = driver.HookBriefly(ctx)
	}
	p := s.beforeProof(ask.SKUs)
	var seen driver.Books
	var plan driver.Plan
	err = s.driver.Transact(ctx, ask, func(books driver.Books) driver.Plan {
		plan, answers = decide(orders, books, m)
		s.seen.noteAll(books, plan)
		seen = books
		return plan
	})
	if err == nil && ask.Own == 0 {
		s.latch(seen, plan, p)
	}
	if isHookBusy(err) {
		s.hooksBriefly.Store(cautious)
	}
	return answers, err
}

// asked lists what a batch has to know, sorted: the order in which rows are locked.
func asked(orders []order) (ask driver.Ask) {
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

func sum(orders []order) (qty int64) {
	for i := range orders {
		qty += orders[i].Qty
	}
	return qty
}
