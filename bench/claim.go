package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/dblock-go/dblock/internal/devdb"
)

// claimSeats is enough for all callers, and few enough that all want the same ones: the first that are free.
const claimSeats = 10_000

// claims is "any free seat, now", by those who pass over what is locked and by those who wait for it. A caller first gives back
// the seat that it had before, so that there are always free ones; in a transaction of its own, as those who wait keep rows
// locked that they find sold, and would deadlock with it.
func claims() []Scenario {
	about := map[bool]string{
		true:  "any free seat of one table: dblock's Claim, FOR UPDATE SKIP LOCKED",
		false: "any free seat of one table: SELECT FOR UPDATE by hand, which waits for the first",
	}
	var all []Scenario
	for _, c := range []struct {
		name string
		skip bool
	}{{"forupdate", false}, {"skiplocked", true}} {
		all = append(all, Scenario{
			Name: "claim/" + c.name, About: about[c.skip], Conns: []int{4, 16, 64},
			Open: func(ctx context.Context, env *Env) (Workload, error) {
				open := openClaimMySQL
				if env.Kind == devdb.Postgres {
					open = openClaimPostgres
				}
				seats, err := open(ctx, env, c.skip)
				if err != nil {
					return nil, err
				}
				return &claimWorkload{seats: seats, holders: make([]atomic.Bool, claimSeats+1)}, nil
			},
		})
	}
	return all
}

// claimTable is a table of seats, each free or sold.
type claimTable interface {
	// sell sells a free seat.
	sell(ctx context.Context) (seat int64, err error)

	// giveBack makes it free again.
	giveBack(ctx context.Context, seat int64) error

	// free makes all seats free, and returns how often they were sold since the last time.
	free(ctx context.Context) (sold int64, err error)

	Close() error
}

type claimWorkload struct {
	seats   claimTable
	holders []atomic.Bool // whether a caller has been told that it has the seat
}

var (
	errSeatTwice = errors.New("two callers have the same seat")
	errNoSeat    = errors.New("no seat is free")
)

func (w *claimWorkload) Close() error { return w.seats.Close() }

func (w *claimWorkload) Round(ctx context.Context, _ int) (Round, error) {
	for i := range w.holders {
		w.holders[i].Store(false)
	}
	if _, err := w.seats.free(ctx); err != nil {
		return Round{}, err
	}
	return Round{
		Client: func(int) (Op, error) {
			var mine int64
			return func(ctx context.Context) (int, error) {
				if mine != 0 {
					w.holders[mine].Store(false)
					if err := w.seats.giveBack(ctx, mine); err != nil {
						return 0, err
					}
					mine = 0
				}
				seat, err := w.seats.sell(ctx)
				if err != nil {
					return 0, err
				}
				if w.holders[seat].Swap(true) {
					return 0, fmt.Errorf("%w: %d", errSeatTwice, seat)
				}
				mine = seat
				return 1, nil
			}, nil
		},
		Check: func(ctx context.Context, ok int64) error {
			sold, err := w.seats.free(ctx)
			if err == nil && sold != ok {
				err = fmt.Errorf("the callers were told of %d seats, the table knows of %d", ok, sold)
			}
			return err
		},
	}, nil
}

// The statements that both engines have alike.
const (
	claimTableSQL = "CREATE TABLE claim_seat (id BIGINT PRIMARY KEY, sold INT NOT NULL, times BIGINT NOT NULL)"
	claimIndexSQL = "CREATE INDEX claim_free ON claim_seat (sold, id)"
	claimFreeSQL  = "SELECT id FROM claim_seat WHERE sold = 0 ORDER BY id"
	claimByHand   = claimFreeSQL + " LIMIT 1 FOR UPDATE"
	claimSumSQL   = "SELECT COALESCE(SUM(times), 0) FROM claim_seat"
	claimSellSQL  = "UPDATE claim_seat SET sold = 1, times = times + 1 WHERE id = "
	claimBackSQL  = "UPDATE claim_seat SET sold = 0 WHERE id = "
	claimResetSQL = "UPDATE claim_seat SET sold = 0, times = 0 WHERE sold <> 0 OR times <> 0"
)
