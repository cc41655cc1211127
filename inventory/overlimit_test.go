package inventory

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// oneHold is a driver with an expired hold of ann's, her only one.
type oneHold struct {
	driver.Driver
	held     bool
	locked   bool  // another transaction has rows of the hold locked
	refused  error // of the next write of its sweep
	lost     error // of the next Transact
	recorded []driver.Row
}

var (
	annsLimit    = driver.Quota{SKU: "sale", Buyer: "ann"}
	annsOrder    = Request{Key: "order", SKU: "sale", Buyer: "ann", Qty: 1, Limit: 1}
	errByTrigger = errors.New("a trigger refuses it")
)

func (*oneHold) Caps() driver.Caps { return driver.Caps{} }

func (*oneHold) Failure(err error) driver.Failure {
	switch {
	case errors.Is(err, errLost):
		return driver.Failure{Class: sqlerr.Unresolved}
	case errors.Is(err, errByTrigger):
		return driver.Failure{Class: sqlerr.BadInput}
	}
	return driver.Failure{}
}

func (e *oneHold) books() driver.Books {
	b := driver.Books{Skipped: skipsNone, Stock: map[string][]driver.Bucket{"sale": {{Left: 9}}},
		Used: map[driver.Quota]int64{annsLimit: 0}, Recorded: driver.ByKey(e.recorded)}
	if e.held {
		b.Used[annsLimit] = 1
	}
	return b
}

func (e *oneHold) Read(context.Context, driver.ReadRequest) (driver.Books, error) {
	return e.books(), nil
}

func (e *oneHold) Due(context.Context, []string, int) (due []driver.Due, err error) {
	if e.held {
		due = append(due, driver.Due{Key: "hold", Quota: annsLimit})
	}
	return due, nil
}

func (e *oneHold) Transact(_ context.Context, _ driver.ReadRequest, decide func(driver.Books) driver.Plan) error {
	if err := e.lost; err != nil {
		e.lost = nil
		return err
	}
	e.recorded = append(e.recorded, decide(e.books()).Insert...)
	return nil
}

func (e *oneHold) Tx(driver.CallerTx) (driver.Tx, bool) { return e, true }

func (e *oneHold) Decide(_ context.Context, _ driver.ReadRequest, decide func(driver.Books) (driver.Plan, bool, error)) error {
	for {
		plan, again, err := decide(e.books())
		if err != nil || !again {
			e.recorded = append(e.recorded, plan.Insert...)
			return err
		}
	}
}

func (e *oneHold) Move(_ context.Context, fn func(driver.MoveTx) error) error { return fn(e) }

func (e *oneHold) Reservations(_ context.Context, keys []string, _ bool) (map[string][]driver.Row, map[string]bool, error) {
	if e.locked {
		return nil, map[string]bool{"hold": true}, nil
	}
	row := driver.Row{Key: "hold", SKU: "sale", Buyer: "ann", Qty: 1, State: int16(ReservationHeld), Limited: true}
	return driver.ByKey([]driver.Row{row}), nil, nil
}

func (*oneHold) Returns(context.Context, driver.Moves, bool, bool) (map[driver.Quota]bool, map[string]bool, error) {
	return map[driver.Quota]bool{annsLimit: true}, map[string]bool{"sale": true}, nil
}

func (e *oneHold) Write(context.Context, driver.Moves) error {
	e.held = e.refused != nil
	return e.refused
}

// TestALimitCountsNoExpiredHold: an order is not refused for its limit, and no refusal is recorded,
// while an expired hold of its buyer's counts. The order is sold, or fails because the hold can't
// be swept. The control is a buyer whose unit is sold.
func TestALimitCountsNoExpiredHold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hold oneHold
		want error
	}{
		"postponed":                  {oneHold{held: true}, nil},
		"locked":                     {oneHold{held: true, locked: true}, dblock.ErrBusy},
		"its sweep is refused":       {oneHold{held: true, refused: errByTrigger}, ErrRejected},
		"after a lost reply":         {oneHold{held: true, lost: errLost}, nil},
		"locked, after a lost reply": {oneHold{held: true, locked: true, lost: errLost}, dblock.ErrBusy},
	} {
		for _, records := range []bool{false, true} {
			for way, reserve := range map[string]func(context.Context, *Store) (Reservation, error){
				"Reserve": func(ctx context.Context, s *Store) (Reservation, error) { return s.Reserve(ctx, annsOrder) },
				"ReserveTx": func(ctx context.Context, s *Store) (Reservation, error) {
					return functions{}.ReserveIn(ctx, s, driver.CallerTx{}, annsOrder)
				},
			} {
				synctest.Test(t, func(t *testing.T) {
					o, err := Options{RecordRefusals: records}.withDefaults()
					if err != nil {
						t.Fatal(err)
					}
					e := c.hold
					s := newStore(&e, o)
					for range 9 {
						s.sweeper.later.put("hold")
					}
					r, err := reserve(t.Context(), s)
					if !errors.Is(err, c.want) || errors.Is(err, ErrLimitExceeded) {
						t.Errorf("%s, %s, records %v: %+v, %v, want %v", name, way, records, r, err, c.want)
					}
					if c.want != nil && len(e.recorded) > 0 {
						t.Errorf("%s, %s, records %v: %v is recorded", name, way, records, e.recorded)
					}
					if c.hold.lost != nil && way == "Reserve" && errors.Is(err, dblock.ErrBusy) != errors.Is(err, dblock.ErrOutcomeUnknown) {
						t.Errorf("%s: the attempt without a reply may yet be committed: %v", name, err)
					}
					if err := s.Close(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		o, _ := Options{RecordRefusals: true, Timeout: time.Second}.withDefaults()
		e := &soldToAnn{oneHold{held: true}}
		s := newStore(e, o)
		if _, err := s.Reserve(t.Context(), annsOrder); !errors.Is(err, ErrLimitExceeded) || len(e.recorded) != 1 {
			t.Errorf("over the limit: %v, recorded %v", err, e.recorded)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// soldToAnn is a driver on which ann has what she may have, for good.
type soldToAnn struct{ oneHold }

func (*soldToAnn) Due(context.Context, []string, int) ([]driver.Due, error) { return nil, nil }
