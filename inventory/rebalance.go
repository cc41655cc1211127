package inventory

import (
	"context"
	"fmt"

	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// Rebalance spreads what is left of an SKU evenly over so many buckets (see Options.Buckets), at most 1,024, and leaves the
// others empty. Fewer than 8 units a bucket it puts into the first, where an order for many finds them together. Allotments
// stay where they are. Under SkipLocked an SKU is levelled by itself when an order finds no bucket that has enough; this is
// for all other times.
//
// Errors: ErrUnknownSKU, ErrInvalid, and of dblock ErrBusy, ErrUnavailable, ErrOutcomeUnknown (call it again), ErrSchema,
// ErrClosed.
func (s *Store) Rebalance(ctx context.Context, sku string, buckets int) error {
	if err := text("", "sku", sku, 1); err != nil {
		return err
	}
	if buckets < 1 || buckets > maxBuckets {
		return &InvalidError{"buckets", fmt.Sprintf("%d is not within 1 to %d", buckets, maxBuckets)}
	}
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	var verdict error
	err = s.retry(ctx, attempt{}, func(ctx context.Context, _ attempt) error {
		verdict = nil
		return s.engine.Adjust(ctx, func(tx engine.AdjustTx) (commit bool, err error) {
			have, err := tx.LockStock(ctx, sku)
			if err != nil || len(have) == 0 {
				verdict = &UnknownSKUError{"the call to Rebalance", sku}
				return false, err
			}
			return moveUnits(ctx, tx, sku, level(sku, have, buckets))
		})
	})
	if err != nil {
		return s.explain(err, fmt.Sprintf("rebalancing of %q", sku))
	}
	s.cameIn(sku)
	return verdict
}

// moveUnits takes from buckets that are locked, and adds to others where a quantity is negative.
func moveUnits(ctx context.Context, tx engine.AdjustTx, sku string, units []engine.Units) (moved bool, err error) {
	var take, add []engine.Units
	for _, u := range units {
		if u.Qty > 0 {
			take = append(take, u)
			continue
		}
		u.Qty = -u.Qty
		add = append(add, u)
	}
	if len(take) > 0 {
		err = tx.TakeStock(ctx, take)
	}
	if len(add) > 0 && err == nil {
		err = tx.AddStock(ctx, add)
	}
	return len(units) > 0, err
}

// ranDry levels the buckets of an SKU of which there was enough for an order, and in no bucket. One SKU at a time is enough: the
// next order would ask again. The order waits for it: done behind its back, it would be in the way of its sender's next one.
func (s *Store) ranDry(ctx context.Context, r Request) {
	if s.o.Buckets == 1 || !s.levelling.CompareAndSwap(false, true) {
		return
	}
	defer s.levelling.Store(false)
	_ = s.Rebalance(ctx, r.SKU, s.o.Buckets) // orders are sold without it, only slower
}
