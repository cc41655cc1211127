package optimistic

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/optimistic"
)

// cutUpdate is for one trial: an account of its own, and a pool of one connection on a dialer that strikes.
type cutUpdate struct {
	l      *ledger
	id     int64
	dialer faultconn.Dialer
	pool   OptimisticPool
}

var lastCut atomic.Int64

func (l *ledger) cutUpdate() (x *cutUpdate, err error) {
	x = &cutUpdate{l: l, id: 1000 + lastCut.Add(1)}
	insert := fmt.Sprintf("INSERT INTO account VALUES (%d, 100, 1)", x.id)
	if _, err := l.db.ExecContext(l.Context(), insert); err != nil {
		return nil, err
	}
	dsn := l.dsn
	if l.e.Kind != devdb.Postgres {
		dsn = suite.AppendQuery(dsn, "readTimeout=2s") // nothing else bounds a commit of database/sql's
		if os.Getenv(suite.EnvSoak) == "" {
			dsn = suite.AppendQuery(dsn, "interpolateParams=true") // to close a prepared statement has no answer, for which a late call waits
		}
	}
	if x.pool, err = l.e.Open(l.Context(), dsn, &x.dialer, 1); err != nil {
		return nil, err
	}
	_, err = x.pool.Update(l.Context(), Change{ID: x.id, Mutate: add(0)}) // what is prepared is so by then
	return x, err
}

func (x *cutUpdate) end() {
	x.dialer.CloseAll()
	x.pool.Close()
}

// update adds 1. In the midst of its first attempt somebody else adds 1,000.
func (x *cutUpdate) update(ctx context.Context, opts ...optimistic.Option) error {
	attempts := 0
	_, err := x.pool.Update(ctx, Change{ID: x.id, Mutate: func(_ context.Context, a *Account) error {
		if attempts++; attempts == 1 {
			intrude := fmt.Sprintf("UPDATE account SET balance = balance + 1000, version = version + 1 WHERE id = %d", x.id)
			if _, err := x.l.db.ExecContext(context.WithoutCancel(ctx), intrude); err != nil {
				x.l.Error(err)
			}
		}
		a.Balance++
		return nil
	}}, opts...)
	return err
}

// times is how often 1 was added, when all that is under way has ended.
func (x *cutUpdate) times() (n int64, err error) {
	query := fmt.Sprintf("SELECT balance %% 100 FROM account WHERE id = %d FOR UPDATE", x.id)
	return n, x.l.db.QueryRowContext(x.l.Context(), query).Scan(&n)
}

func anUpdateCutAnywhere(l *ledger) {
	l.cutAnywhere(func(*cutUpdate) []optimistic.Option { return nil })
}

func anEscalatedUpdateCutAnywhere(l *ledger) {
	l.cutAnywhere(func(x *cutUpdate) []optimistic.Option { return []optimistic.Option{x.pool.Escalate(1, x.id)} })
}

// cutAnywhere: whoever is told that it is written has it written once; whoever is told of an error has it not, unless the outcome
// is unknown.
func (l *ledger) cutAnywhere(opts func(*cutUpdate) []optimistic.Option) {
	var unknown, lost atomic.Int64 // lost: it is written, and the answer did not come
	suite.Everywhere(l.T, suite.Cuts(false), func(c suite.Cut, k int) (struck bool, err error) {
		x, err := l.cutUpdate()
		if err != nil {
			return false, err
		}
		defer x.end()
		ctx, cancel := context.WithCancel(l.Context())
		if c.Slow() {
			ctx, cancel = context.WithTimeout(l.Context(), suite.CutTimeout)
		}
		defer cancel()
		x.dialer.Arm(k, c.Mode, cancel)
		told := x.update(ctx, append(opts(x), optimistic.Backoff(0, 0))...)
		struck = x.dialer.Disarm()
		x.dialer.Release()
		x.dialer.CloseAll() // a server that nobody answers keeps what it has locked
		n, err := x.times()
		switch {
		case err != nil:
			return struck, err
		case errors.Is(told, dblock.ErrOutcomeUnknown):
			unknown.Add(1)
			lost.Add(n)
			if n > 1 {
				return struck, fmt.Errorf("told %w: it was written %d times", told, n)
			}
		case told == nil && n != 1, told != nil && n != 0:
			return struck, fmt.Errorf("told %v: it was written %d times", told, n)
		case told != nil && !errors.Is(told, dblock.ErrUnavailable) && !errors.Is(told, faultconn.ErrCut) && ctx.Err() == nil:
			return struck, fmt.Errorf("told without need: %w", told)
		}
		if !struck && told != nil && ctx.Err() == nil { // its time is short, and a machine that is busy may need more
			return struck, fmt.Errorf("undisturbed, and yet: %w", told)
		}
		return struck, nil
	})
	l.T.Logf("%d outcomes were unknown, %d of them written", unknown.Load(), lost.Load())
	if unknown.Load() == 0 || lost.Load() == 0 {
		l.Errorf("%d outcomes were unknown, %d of them written: the test has cut no write", unknown.Load(), lost.Load())
	}
}

// controlWritesTwice: to try again whatever the error is writes twice, where the answer was lost.
func controlWritesTwice(l *ledger) {
	twice := false
	for k := 1; !twice; k++ {
		x, err := l.cutUpdate()
		l.must(err)
		x.dialer.Arm(k, faultconn.CutAfter, nil)
		for range 3 {
			if x.update(l.Context()) == nil {
				break
			}
		}
		struck := x.dialer.Disarm()
		n, err := x.times()
		x.end()
		l.must(err)
		if twice = n > 1; !struck && !twice {
			l.Fatal("the test would pass if unknown outcomes were repeated")
		}
	}
}
