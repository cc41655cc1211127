package inventory

import (
	"context"
	"fmt"

	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// Restock changes the stock of a.SKU by a.Delta: up for a delivery or a return, down for a
// write-off. A new SKU is created, unless Delta is negative. Sent again under the same ID it
// changes nothing and says replayed, as it does if a reply of its own was lost.
//
// Errors: ErrSoldOut (a negative Delta that exceeds what is left), ErrUnknownSKU, ErrKeyReused,
// ErrRejected, and of dblock ErrInvalid, ErrBusy, ErrConflict, ErrUnavailable, ErrOutcomeUnknown,
// ErrSchema, ErrClosed.
func (s *Store) Restock(ctx context.Context, a Adjustment) (replayed bool, err error) {
	if err := a.validate(); err != nil {
		return false, err
	}
	leave, err := s.calls.begin()
	if err != nil {
		return false, err
	}
	defer leave()
	change := driver.Adjustment(a)
	var verdict error
	err = s.adjust(ctx, a.SKU, fmt.Sprintf("adjustment %q", a.ID), func(ctx context.Context, _ attempt) error {
		replayed, verdict = false, nil
		err := s.driver.Adjust(ctx, func(tx driver.AdjustTx) (commit bool, err error) {
			verdict, err = adjust(ctx, tx, change)
			return verdict == nil, err
		})
		if err == nil || s.retry.class(err) != sqlerr.Duplicate {
			return err
		}
		recorded, found, lookup := s.driver.Adjustment(ctx, a.ID)
		switch {
		case lookup != nil:
			return lookup
		case !found:
			return err // the transaction that had it is gone: run again
		case recorded != change:
			verdict = &KeyReusedError{Key: a.ID, Recorded: describe(recorded), Sent: describe(change)}
		default:
			replayed = true
		}
		return nil
	})
	s.cache.cameIn(a.SKU) // also without a reply: it may have been committed
	if err != nil {
		return false, err
	}
	return replayed, verdict
}

// adjust is the transaction of one adjustment; its verdict says why nothing is to be written. The
// ledger comes first: its key decides whether there is anything to do. Most changes are of
// one row, which takes one statement.
func adjust(ctx context.Context, tx driver.AdjustTx, a driver.Adjustment) (verdict, err error) {
	if err := tx.InsertAdjustment(ctx, a); err != nil {
		return nil, err
	}
	if done, err := tx.AdjustStock(ctx, a); done || err != nil {
		return nil, err
	}
	have, err := tx.LockStock(ctx, a.SKU, true)
	if err != nil {
		return nil, err
	}
	left := total(have)
	switch {
	case a.Delta < 0 && len(have) == 0:
		return &UnknownSKUError{a.ID, a.SKU}, nil
	case left+a.Delta < 0:
		return &SoldOutError{Key: a.ID, SKU: a.SKU, Wanted: -a.Delta, Available: left}, nil
	case a.Delta < 0:
		return nil, tx.TakeStock(ctx, taken(a.SKU, have, -a.Delta))
	}
	return nil, tx.AddStock(ctx, []driver.Units{{SKU: a.SKU, Qty: a.Delta}})
}

func describe(a driver.Adjustment) string {
	return fmt.Sprintf("%+d of %q", a.Delta, a.SKU)
}
