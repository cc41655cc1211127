package inventory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// txTries is how often an order is decided in a caller's transaction, where others write the same key meanwhile.
const txTries = 3

// ReserveIn is what ReserveTx of an engine room does: outside this module there is no engine.CallerTx.
func (s *Store) ReserveIn(ctx context.Context, tx engine.CallerTx, r Request) (Reservation, error) {
	if err := r.validate(); err != nil {
		return Reservation{}, err
	}
	return s.reserveIn(ctx, tx, order{Request: r})
}

// ReserveAllIn is what ReserveAllTx of an engine room does.
func (s *Store) ReserveAllIn(ctx context.Context, tx engine.CallerTx, c Cart) (Reservation, error) {
	o, err := c.order()
	if err != nil {
		return Reservation{}, err
	}
	return s.reserveIn(ctx, tx, o)
}

func (s *Store) reserveIn(ctx context.Context, caller engine.CallerTx, o order) (Reservation, error) {
	tx, ours := s.engine.Tx(caller)
	switch {
	case s.ending.Err() != nil:
		return Reservation{}, fmt.Errorf("%w: nothing was sent", dblock.ErrClosed)
	case !ours:
		return Reservation{}, &InvalidError{"tx", "it is nil, or of another engine than the Store"}
	}
	began := time.Now()
	orders := []order{o}
	ask := asked(orders)
	ask.Wait, ask.WaitQuotas = true, true
	for n := 1; ; n++ {
		var answers []answer
		err := tx.Decide(ctx, ask, func(books engine.Books) (plan engine.Plan) {
			plan, answers = decide(orders, books, mode{recordRefusals: s.o.RecordRefusals})
			return plan
		})
		is := fault.Other
		if err != nil {
			is = s.fault(err)
		}
		switch {
		case err == nil:
			return o.reservation(answers[0].Value, began), answers[0].Err
		case errors.Is(err, engine.ErrTxEnded):
			return Reservation{}, &InvalidError{"tx", fmt.Sprintf("it has ended: order %q was not sent", o.Key)}
		case errors.Is(err, engine.ErrTxReadOnly):
			return Reservation{}, &InvalidError{"tx", fmt.Sprintf("it is read-only: order %q was not written", o.Key)}
		case errors.Is(err, dblock.ErrTxEnded):
			return Reservation{}, fmt.Errorf("order %q: %w", o.Key, err)
		case is == fault.Duplicate && n < txTries:
			continue
		case is == fault.Duplicate || is == fault.Retry:
			return Reservation{}, fmt.Errorf("%w: order %q: %w", dblock.ErrConflict, o.Key, err)
		case is == fault.Busy:
			return Reservation{}, fmt.Errorf("%w: order %q: nothing was written: %w", dblock.ErrBusy, o.Key, err)
		case is == fault.Unreachable || is == fault.Lost:
			return Reservation{}, fmt.Errorf("%w: order %q: nothing was written: %w", dblock.ErrUnavailable, o.Key, err)
		}
		return Reservation{}, s.explain(err, fmt.Sprintf("order %q", o.Key))
	}
}
