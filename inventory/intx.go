package inventory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// txTries is how often an order is decided in a caller's transaction, if others write the same key
// meanwhile.
const txTries = 3

// reserveIn is reserve in a transaction of the caller's.
func (s *seller) reserveIn(ctx context.Context, caller driver.CallerTx, o order) (Reservation, error) {
	tx, ours := s.driver.Tx(caller)
	if !ours {
		return Reservation{}, invalid("tx", "it is nil, or of another driver than that of the Store")
	}
	began := time.Now()
	a, err := s.decideIn(ctx, tx, o)
	if err != nil {
		return Reservation{}, s.explainIn(err, o.Key)
	}
	return o.reservation(a.Value, began), a.Err
}

// decideIn decides an order in a caller's transaction. It waits for what others have locked. An
// order over its limit has the buyer's expired holds swept and is decided again while its own rows
// stay locked: only the first decision waits, so no sweeps deadlock.
func (s *seller) decideIn(ctx context.Context, tx driver.Tx, o order) (result, error) {
	ask := asked([]order{o})
	ask.Wait, ask.WaitQuotas = true, true
	for n := 1; ; n++ {
		orders := []order{o}
		var results []result
		var left error // why expired holds of the buyer still count against the limit
		err := tx.Decide(ctx, ask, func(books driver.Books) (plan driver.Plan, again bool, err error) {
			plan, results = decide(orders, books, mode{recordRefusals: s.o.RecordRefusals})
			switch {
			case !isOverLimit(results[0].Err):
				return plan, false, nil
			case orders[0].swept:
				return plan, false, left
			}
			var swept bool
			orders[0].swept = true
			swept, left, err = s.sweepIn(ctx, tx, o.Buyer, ask.Quotas)
			if err == nil && !swept {
				err = left
			}
			return plan, swept || s.o.RecordRefusals, err
		})
		switch {
		case err == nil:
			return results[0], nil
		case isEnded(err) || s.retry.class(err) != sqlerr.Duplicate || n == txTries:
			return result{}, err
		}
	}
}

// sweptInTx bounds how many holds sweepIn gives back: their stock stays locked until the caller's
// transaction ends.
const sweptInTx = 16

// sweepIn gives back, in a caller's transaction, the expired holds of a buyer that count against
// some limits. It passes over holds with locked rows. left says why others go on counting. An err
// means that it is not known which, or that the transaction is of no use.
func (s *seller) sweepIn(ctx context.Context, tx driver.Tx, buyer string, of []driver.Quota) (swept bool, left, err error) {
	holds := expiredHolds{of: make(map[string]bool), keys: make(map[driver.Quota][]string)}
	err = holds.read([]string{buyer}, func(buyers []string) ([]driver.Due, error) { return tx.Due(ctx, buyers, dueScan) })
	if err != nil {
		return false, nil, err
	}
	due := holds.against(of)
	for i, hold := range due {
		if i == sweptInTx {
			return swept, &ended{dblock.ErrBusy, errUnswept}, nil
		}
		locks := false
		err := tx.Move(ctx, func(tx driver.MoveTx) error {
			moves, results, err := locked(ctx, tx, []change{{to: ReservationExpired, key: hold.Key}}, s.o.MaxBatch)
			switch {
			case err != nil:
				return err
			case moves.IsEmpty():
				locks = results[0].Value.waits != forNothing
				return errUnchanged
			}
			return tx.Write(ctx, moves)
		})
		switch {
		case err == nil:
			swept = true
		case errors.Is(err, errUnchanged) && locks:
			left = &ended{dblock.ErrBusy, errUnswept}
		case errors.Is(err, errUnchanged):
		case s.isFatal(err):
			return swept, nil, err
		default:
			left = err
		}
	}
	return swept, left, nil
}

// errUnchanged rolls back what was locked for a hold that stays as it is: other transactions have
// rows of it locked, or have swept it.
var errUnchanged = errors.New("inventory: the hold stays as it is")

// isFatal reports that a caller's transaction is of no use after an error of a sweep.
func (s *seller) isFatal(err error) bool {
	is := s.retry.class(err)
	return isEnded(err) || is == sqlerr.Retryable || is == sqlerr.Unavailable || is == sqlerr.Unresolved
}

// isEnded reports that a caller's transaction can't be used.
func isEnded(err error) bool {
	return errors.Is(err, driver.ErrTxEnded) || errors.Is(err, driver.ErrTxReadOnly) || errors.Is(err, dblock.ErrTxEnded)
}

// explainIn is explain for an order in a caller's transaction.
func (s *seller) explainIn(err error, key string) error {
	switch {
	case errors.Is(err, driver.ErrTxEnded):
		return invalid("tx", "it has ended: order %q was not sent", key)
	case errors.Is(err, driver.ErrTxReadOnly):
		return invalid("tx", "it is read-only: order %q was not written", key)
	case errors.Is(err, dblock.ErrTxEnded):
		return fmt.Errorf("order %q: %w", key, err)
	}
	what := fmt.Sprintf("order %q", key)
	var end *ended
	if is := s.retry.class(err).Harmless(); is == sqlerr.Unavailable && !errors.As(err, &end) {
		return sqlerr.Wrap(is, err, what, "")
	}
	return s.retry.explain(err, what)
}
