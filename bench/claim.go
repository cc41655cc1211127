package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/mysqllock"
	"github.com/dblock-go/dblock/pglock"
)

const (
	// claimSeats is enough for all clients, and few enough that all want the same ones: the first
	// that are free.
	claimSeats = 10_000

	claimWork = 5 * time.Millisecond
)

// claims sell any free seat: one skips locked rows, the other waits for them. Each client has a
// connection. A client that finds all seats sold frees them.
//
// In the claimwork scenarios something takes 5 ms between the claim and the commit, as a payment
// does: that is what rows are claimed for. Without it the two differ by little more than what the
// server has processors for.
func claims() []Scenario {
	const skip, wait = "FOR UPDATE SKIP LOCKED (Claim)", "FOR UPDATE by hand, which waits for the first"
	return []Scenario{
		claimScenario("claim/forupdate", "any free seat of one table: "+wait, false, 0),
		claimScenario("claim/skiplocked", "any free seat of one table: "+skip, true, 0),
		claimScenario("claimwork/forupdate", "the same with 5 ms of work in each transaction: "+wait, false, claimWork),
		claimScenario("claimwork/skiplocked", "the same with 5 ms of work in each transaction: "+skip, true, claimWork),
	}
}

func claimScenario(name, about string, skip bool, work time.Duration) Scenario {
	return Scenario{
		Name: name, About: about, Conns: []int{64}, MaxClients: 64,
		Open: func(ctx context.Context, env *Env) (Workload, error) {
			db, err := env.Database(ctx)
			if err != nil {
				return nil, err
			}
			seats := seatTable{db, skip, work}
			if err := seats.create(ctx); err != nil {
				return nil, errors.Join(err, db.Close())
			}
			return &claimWorkload{seats: seats, holders: make([]atomic.Bool, claimSeats+1)}, nil
		},
	}
}

type claimWorkload struct {
	seats interface {
		// sell sells a free seat.
		sell(ctx context.Context) (seat int64, err error)

		// free makes all seats free.
		free(ctx context.Context) error

		// sold is how often seats were sold, in all.
		sold(ctx context.Context) (int64, error)

		Close() error
	}

	mu      sync.RWMutex // exclusive while all seats are freed
	freed   int
	holders []atomic.Bool // whether a client was granted the seat
}

var (
	errSeatTwice = errors.New("two clients have the same seat")
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
		Check:  matches("seats", "the table knows of", before, w.seats.sold),
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

// sell returns how often all seats had been freed by then.
func (w *claimWorkload) sell(ctx context.Context) (freed int, err error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	seat, err := w.seats.sell(ctx)
	if err == nil && w.holders[seat].Swap(true) {
		err = fmt.Errorf("%w: %d", errSeatTwice, seat)
	}
	return w.freed, err
}

// free waits for the clients that are about to sell a seat. If another client was faster, it does
// nothing.
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

const claimFree = "SELECT id FROM claim_seat WHERE sold = 0 ORDER BY id"

// seatTable is a table of seats, each free or sold.
type seatTable struct {
	*Database
	skip bool          // locked seats
	work time.Duration // between the claim and the commit
}

func (t seatTable) create(ctx context.Context) error {
	rows := make([]string, claimSeats)
	for i := range rows {
		rows[i] = fmt.Sprintf("(%d, 0, 0)", i+1)
	}
	return execAll(ctx, t,
		"CREATE TABLE claim_seat (id BIGINT PRIMARY KEY, sold INT NOT NULL, times BIGINT NOT NULL)",
		"CREATE INDEX claim_free ON claim_seat (sold, id)",
		"INSERT INTO claim_seat VALUES "+strings.Join(rows, ", "))
}

func (t seatTable) sell(ctx context.Context) (seat int64, err error) {
	err = t.Tx(ctx, func(tx Conn) (err error) {
		seat, err = t.claim(ctx, tx)
		if errors.Is(err, sql.ErrNoRows) {
			err = &Failure{Kind: "none_free", Err: errNoSeat}
		}
		if err != nil {
			return err
		}
		time.Sleep(t.work)
		_, err = tx.Exec(ctx, "UPDATE claim_seat SET sold = 1, times = times + 1 WHERE id = $1", seat)
		return err
	})
	if pglock.Retryable(err) || mysqllock.Retryable(err) {
		err = &Failure{Kind: "conflict", Err: err}
	}
	return seat, err
}

// claim locks a free seat. Without one it returns sql.ErrNoRows.
func (t seatTable) claim(ctx context.Context, tx Conn) (seat int64, err error) {
	if !t.skip {
		err := tx.Query(ctx, claimFree+" LIMIT 1 FOR UPDATE").Scan(&seat)
		return seat, err
	}
	var seats []int64
	switch conn := tx.(type) {
	case postgresConn:
		seats, err = pglock.Claim(ctx, conn.on.(pgx.Tx), dblock.RowLock{}, 1, pgx.RowTo[int64], claimFree)
	case mysqlConn:
		read := func(row *sql.Rows) (id int64, err error) {
			err = row.Scan(&id)
			return id, err
		}
		seats, err = mysqllock.Claim(ctx, conn.on.(*sql.Tx), dblock.RowLock{}, 1, read, claimFree)
	}
	if err != nil {
		return 0, err
	}
	if len(seats) == 0 {
		return 0, sql.ErrNoRows
	}
	return seats[0], nil
}

func (t seatTable) free(ctx context.Context) error {
	return execAll(ctx, t, "UPDATE claim_seat SET sold = 0 WHERE sold <> 0")
}

func (t seatTable) sold(ctx context.Context) (sold int64, err error) {
	err = t.Query(ctx, "SELECT COALESCE(SUM(times), 0) FROM claim_seat").Scan(&sold)
	return sold, err
}
