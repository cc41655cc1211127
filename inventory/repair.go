package inventory

import (
	"context"
	"fmt"
	"slices"

	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// Repair is what was wrong with the books of one SKU, and is right now.
type Repair struct {
	Before   Balance
	Why      string // what the drift means; empty: there was none.
	Moved    int64  // units that were added to the stock, or, negative, taken out of it.
	Oversold int64  // units that are held or sold and never came in: the stock is empty, and that is all that can be done.
	Quotas   int    // buyers whose use of their limit was counted wrongly.
}

// Repair makes the stock of the given SKUs, or of all if none is given, what the ledger says:
// all adjustments, less what is held and sold; and likewise what buyers have used of their limits.
// It returns those that were wrong, sorted by SKU. It can run while the SKU is sold, and waits for
// its row like an order. It reads all reservations of theirs, as Audit does, and again those of an
// SKU that is wrong.
//
// Errors: of dblock ErrInvalid, ErrBusy, ErrConflict, ErrUnavailable, ErrOutcomeUnknown (call
// it again), ErrSchema, ErrClosed. What was repaired before one of them is returned, too.
func (s *Store) Repair(ctx context.Context, skus ...string) ([]Repair, error) {
	leave, err := s.calls.begin()
	if err != nil {
		return nil, err
	}
	defer leave()
	all, err := s.toRepair(ctx, skus)
	if err != nil {
		return nil, err
	}
	var repairs []Repair
	for _, sku := range all {
		r, err := s.repair(ctx, sku)
		if r.Why != "" || r.Quotas > 0 {
			repairs = append(repairs, r)
		}
		if err != nil {
			return repairs, err
		}
	}
	return repairs, nil
}

// toRepair returns the SKUs whose stock or quotas are wrong, sorted. An SKU that is right costs no
// statement of its own.
func (s *Store) toRepair(ctx context.Context, skus []string) (all []string, err error) {
	books, err := s.Audit(ctx, skus...)
	if err != nil {
		return nil, err
	}
	err = s.run(ctx, "repair", func(ctx context.Context) (err error) {
		all, err = s.driver.WrongQuotas(ctx, skus)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, b := range books {
		if b.Drift() != 0 {
			all = append(all, b.SKU)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

func (s *Store) repair(ctx context.Context, sku string) (r Repair, err error) {
	adjust := func(fn func(context.Context, driver.AdjustTx, attempt) (commit bool, err error)) error {
		return s.adjust(ctx, sku, fmt.Sprintf("repair of %q", sku), func(ctx context.Context, this attempt) error {
			return s.driver.Adjust(ctx, func(tx driver.AdjustTx) (bool, error) { return fn(ctx, tx, this) })
		})
	}
	err = adjust(func(ctx context.Context, tx driver.AdjustTx, this attempt) (bool, error) {
		now, err := repairStock(ctx, tx, sku)
		if err == nil && (now.Why != "" || !this.unresolved) { // else an attempt before has repaired it
			r = now
		}
		return now.Moved != 0, err
	})
	if err != nil {
		return Repair{}, err
	}
	if r.Moved != 0 {
		s.cache.cameIn(sku)
	}
	err = adjust(func(ctx context.Context, tx driver.AdjustTx, this attempt) (bool, error) {
		n, err := repairQuotas(ctx, tx, sku)
		if err == nil && (n > 0 || !this.unresolved) {
			r.Quotas = n
		}
		return n > 0, err
	})
	if err != nil {
		r.Quotas = 0
	}
	return r, err
}

// repairStock reads the books once the stock is locked: what others write meanwhile changes both
// sides alike, or waits.
func repairStock(ctx context.Context, tx driver.AdjustTx, sku string) (r Repair, err error) {
	have, err := tx.LockStock(ctx, sku, true)
	if err != nil {
		return r, err
	}
	books, err := tx.Balance(ctx, sku)
	if err != nil {
		return r, err
	}
	r.Before = Balance(books)
	switch drift := r.Before.Drift(); {
	case drift > 0:
		r.Why = fmt.Sprintf("%d units left the stock, and no reservation holds them or has sold them", drift)
		r.Moved = drift
		return r, tx.AddStock(ctx, []driver.Units{{SKU: sku, Qty: drift}})
	case drift < 0:
		r.Why = fmt.Sprintf("%d units more are in the stock, held and sold than came in", -drift)
		r.Moved = -min(-drift, total(have))
		r.Oversold = -drift + r.Moved
		if r.Moved != 0 {
			err = tx.TakeStock(ctx, taken(sku, have, -r.Moved))
		}
	}
	return r, err
}

// repairQuotas looks twice: what it found is locked, and may be right by now.
func repairQuotas(ctx context.Context, tx driver.AdjustTx, sku string) (repaired int, err error) {
	found, err := tx.QuotaDrifts(ctx, sku)
	if err != nil || len(found) == 0 {
		return 0, err
	}
	quotas := make([]driver.Quota, len(found))
	locked := make(map[driver.Quota]bool, len(found))
	for i, c := range found {
		quotas[i], locked[c.Quota] = c.Quota, true
	}
	if err := tx.LockQuotas(ctx, quotas); err != nil {
		return 0, err
	}
	now, err := tx.QuotaDrifts(ctx, sku)
	if err != nil {
		return 0, err
	}
	var more, less []driver.Count
	for _, c := range now {
		switch {
		case !locked[c.Quota]:
		case c.Qty > 0:
			more = append(more, c)
		default:
			c.Qty = -c.Qty
			less = append(less, c)
		}
	}
	if len(more) > 0 {
		err = tx.CountQuotas(ctx, more)
	}
	if len(less) > 0 && err == nil {
		err = tx.UncountQuotas(ctx, less)
	}
	return len(more) + len(less), err
}
