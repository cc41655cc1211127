package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
// stay locked: only the first decision waits, so no sweeps wait crosswise.
func (s *seller) decideIn(ctx context.Context, tx driver.Tx, o order) (answer, error) {
	ask := asked([]order{o})
	ask.Wait, ask.WaitQuotas = true, true
	for n := 1; ; n++ {
		orders := []order{o}
		var answers []answer
		err := tx.Decide(ctx, ask, func(books driver.Books) (plan driver.Plan, again bool, err error) {
			plan, answers = decide(orders, books, mode{recordRefusals: s.o.RecordRefusals})
			if orders[0].swept || !isOverLimit(answers[0].Err) {
				return plan, false, nil
			}
			orders[0].swept = true
			swept, err := s.sweepIn(ctx, tx, o.Buyer, ask.Quotas)
			return plan, swept || s.o.RecordRefusals, err
		})
		switch {
		case err == nil:
			return answers[0], nil
		case isEnded(err) || s.retry.class(err) != sqlerr.Duplicate || n == txTries:
			return answer{}, err
		}
	}
}

// sweptInTx bounds how many holds sweepIn gives back: their stock stays locked until the caller's
// transaction ends.
const sweptInTx = 16

// sweepIn gives back, in a caller's transaction, the expired holds of a buyer that count against
// some limits. It passes over holds with locked rows. What can't be found or swept goes on
// counting. An error means that the transaction is of no use.
func (s *seller) sweepIn(ctx context.Context, tx driver.Tx, buyer string, of []driver.Quota) (swept bool, err error) {
	holds := expiredHolds{of: make(map[string]bool), keys: make(map[driver.Quota][]string)}
	err = holds.read([]string{buyer}, func(buyers []string) ([]driver.Due, error) { return tx.Due(ctx, buyers, dueScan) })
	if err != nil {
		return false, s.unlessUsable(err)
	}
	ready := s.sweeper.ready(holds.against(of))
	for _, hold := range ready[:min(len(ready), sweptInTx)] {
		err := tx.Move(ctx, func(tx driver.MoveTx) error {
			moves, _, err := locked(ctx, tx, []change{{to: ReservationExpired, key: hold.Key}}, s.o.MaxBatch)
			if err != nil {
				return err
			}
			counts := func(c driver.Count) bool { return slices.Contains(of, c.Quota) }
			if !slices.ContainsFunc(moves.Uncount, counts) {
				return errOfNoUse
			}
			return tx.Write(ctx, moves)
		})
		if err == nil {
			swept = true
		} else if err = s.unlessUsable(err); err != nil {
			return swept, err
		}
	}
	return swept, nil
}

// errOfNoUse is for a hold that is locked, or counts against no limit of the order: it stays as it
// is.
var errOfNoUse = errors.New("inventory: to sweep this hold would not help the order")

// unlessUsable returns the error of a sweep, or nil if the caller's transaction goes on without the
// sweep.
func (s *seller) unlessUsable(err error) error {
	switch is := s.retry.class(err); {
	case errors.Is(err, errOfNoUse):
		return nil
	case isEnded(err), is == sqlerr.Retryable, is == sqlerr.Unavailable, is == sqlerr.Unresolved:
		return err
	}
	return nil
}

// isEnded tells that a caller's transaction can't be used.
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
	if is := s.retry.class(err).Harmless(); is == sqlerr.Unavailable {
		return sqlerr.Wrap(is, err, what, "")
	}
	return s.retry.explain(err, what)
}
