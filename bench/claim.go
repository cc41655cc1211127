package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/internal/devdb"
)

// claimSeats is enough for all callers, and few enough that all want the same ones: the first that are free.
const claimSeats = 10_000

// claims is "any free seat, now", by those who pass over what is locked and by those who wait for it, each on a connection of its
// own. When all seats are sold, whoever finds that out frees them.
//
// In the claimwork scenarios something takes 5 ms between the claim and the commit, as a payment does: that is what rows are
// claimed for. Without it the two differ by little more than what the server has processors for.
func claims() []Scenario {
	const skip, wait = "FOR UPDATE SKIP LOCKED (Claim)", "FOR UPDATE by hand, which waits for the first"
	return []Scenario{
		claimScenario("claim/forupdate", "any free seat of one table: "+wait, false, 0),
		claimScenario("claim/skiplocked", "any free seat of one table: "+skip, true, 0),
		claimScenario("claimwork/forupdate", "the same with 5 ms of work in each transaction: "+wait, false, claimWork),
		claimScenario("claimwork/skiplocked", "the same with 5 ms of work in each transaction: "+skip, true, claimWork),
	}
}

const claimWork = 5 * time.Millisecond

func claimScenario(name, about string, skip bool, work time.Duration) Scenario {
	return Scenario{
		Name: name, About: about, Conns: []int{64}, MaxClients: 64,
		Open: func(ctx context.Context, env *Env) (Workload, error) {
			open := openClaimMySQL
			if env.Kind == devdb.Postgres {
				open = openClaimPostgres
			}
			seats, err := open(ctx, env, claiming{skip, work})
			if err != nil {
				return nil, err
			}
			return &claimWorkload{seats: seats, holders: make([]atomic.Bool, claimSeats+1)}, nil
		},
	}
}

// claiming is how a seat is sold.
type claiming struct {
	skip bool          // pass over what is locked
	work time.Duration // between the claim and the commit
}

// claimTable is a table of seats, each free or sold.
type claimTable interface {
	// sell sells a free seat.
	sell(ctx context.Context) (seat int64, err error)

	// free makes all seats free.
	free(ctx context.Context) error

	// sold is how often seats were sold, in all.
	sold(ctx context.Context) (int64, error)

	Close() error
}

type claimWorkload struct {
	seats claimTable

	mu      sync.RWMutex // who frees all seats has it alone
	freed   int
	holders []atomic.Bool // whether a caller has been told that it has the seat
}

var (
	errSeatTwice = errors.New("two callers have the same seat")
	errNoSeat    = errors.New("no seat is free")
)

func (w *claimWorkload) Close() error { return w.seats.Close() }

func (w *claimWorkload) Round(ctx context.Context, _ int) (Round, error) {
	if err := w.free(ctx, w.freed); err != nil {
		return Round{}, err
	}
	before, err := w.seats.sold(ctx)
	if err != nil {
		return Round{}, err
	}
	return Round{
		Client: func(int) (Op, error) { return w.claim, nil },
		Check: func(ctx context.Context, ok int64) error {
			sold, err := w.seats.sold(ctx)
			if err == nil && sold-before != ok {
				err = fmt.Errorf("the callers were told of %d seats, the table knows of %d", ok, sold-before)
			}
			return err
		},
	}, nil
}

// claim sells one seat.
func (w *claimWorkload) claim(ctx context.Context) (int, error) {
	freed, err := w.sell(ctx)
	if errors.Is(err, errNoSeat) {
		if err := w.free(ctx, freed); err != nil {
			return 0, err
		}
		_, err = w.sell(ctx)
	}
	if err != nil {
		return 0, err
	}
	return 1, nil
}

// sell tells how often all seats had been freed by then.
func (w *claimWorkload) sell(ctx context.Context) (freed int, err error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	seat, err := w.seats.sell(ctx)
	if err == nil && w.holders[seat].Swap(true) {
		err = fmt.Errorf("%w: %d", errSeatTwice, seat)
	}
	return w.freed, err
}

// free waits for those who are about to sell a seat; where somebody else was faster it does nothing.
func (w *claimWorkload) free(ctx context.Context, freed int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.freed != freed {
		return nil
	}
	for i := range w.holders {
		w.holders[i].Store(false)
	}
	w.freed++
	return w.seats.free(ctx)
}

// The statements that both engines have alike.
const (
	claimTableSQL = "CREATE TABLE claim_seat (id BIGINT PRIMARY KEY, sold INT NOT NULL, times BIGINT NOT NULL)"
	claimIndexSQL = "CREATE INDEX claim_free ON claim_seat (sold, id)"
	claimFreeSQL  = "SELECT id FROM claim_seat WHERE sold = 0 ORDER BY id"
	claimByHand   = claimFreeSQL + " LIMIT 1 FOR UPDATE"
	claimSumSQL   = "SELECT COALESCE(SUM(times), 0) FROM claim_seat"
	claimSellSQL  = "UPDATE claim_seat SET sold = 1, times = times + 1 WHERE id = "
	claimResetSQL = "UPDATE claim_seat SET sold = 0 WHERE sold <> 0"
)
