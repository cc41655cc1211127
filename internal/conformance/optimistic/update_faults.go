package optimistic

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/optimistic"
)

// overtaken is the kind of a step that was told of a conflict: what it had read was no longer
// there.
const overtaken suite.What = "overtaken"

// casRegister is an account's balance, of which each is written once.
type casRegister struct{ value int64 }

func (r casRegister) Next(s suite.Step) []suite.State {
	switch {
	case s.What == suite.Read && s.Was == r.value, s.What == overtaken && s.Was != r.value:
		return []suite.State{r}
	case s.What == suite.Updated && s.Was == r.value:
		return []suite.State{casRegister{s.Now}}
	}
	return nil
}

// swap notes an update of account 1 to a balance that no other writes. between runs when it has
// read, and has not written.
func (l *updates) swap(t *testing.T, h *suite.History, client int, to int64, blind bool, between func()) {
	var was, loaded int64
	from := h.Now()
	_, err := l.pool.Update(t.Context(), Change{ID: 1, Blind: blind, Mutate: func(_ context.Context, a *Account) error {
		was, loaded = a.Balance, h.Now()
		a.Balance = to
		between()
		return nil
	}}, optimistic.Attempts(1))
	h.Note(client, from, loaded, suite.Step{What: suite.Read, Key: "1", Was: was})
	if err == nil {
		h.Note(client, loaded, h.Now(), suite.Step{What: suite.Updated, Key: "1", Was: was, Now: to})
	} else if assert.ErrorIs(t, err, optimistic.ErrConflict) {
		h.Note(client, loaded, h.Now(), suite.Step{What: overtaken, Key: "1", Was: was})
	}
}

// swapsMeet has two swaps that both have read before either writes.
func (l *updates) swapsMeet(t *testing.T, h *suite.History, blind bool) {
	meet := meeting()
	suite.Crowd(2, func(n int) { l.swap(t, h, n, int64(100_000+n), blind, func() { meet(n) }) })
}

// isACASRegister: what each reads and writes, and is refused, has an order in which it makes sense.
func isACASRegister(t *testing.T, l *updates) {
	h := &suite.History{Began: time.Now()}
	suite.Crowd(8, func(client int) {
		for n := range 25 {
			l.swap(t, h, client, int64(1000*(client+1)+n), false, func() {})
		}
	})
	l.swapsMeet(t, h, false)
	first := casRegister{100}
	if !h.IsRight(t, first) {
		t.Errorf("no order makes sense of\n%s", h.Wrong(first))
	}
	refused, at, met := h.First(func(s suite.Step) bool { return s.What == overtaken })
	write, _, wrote := h.First(func(s suite.Step) bool { return s.What == suite.Updated })
	require.True(t, met && wrote, "%v: there was no conflict", h)
	lie := slices.Clone(h.Steps)
	refused.What, refused.Now = suite.Updated, -1
	lie[at].Input = refused
	h.ForgeriesAreNoticed(t, first, map[string][]porcupine.Operation{
		"an update that was refused": lie, "an update for the second time": h.And(write),
	})
}

// controlIsNoCASRegister: with the version left out of the WHERE, two that have read the same both
// write.
func controlIsNoCASRegister(t *testing.T, l *updates) {
	h := &suite.History{Began: time.Now()}
	l.swapsMeet(t, h, true)
	assert.False(t, h.IsRight(t, casRegister{100}))
}

// cutUpdate is for one trial: an account of its own, and a pool of one connection on a dialer that
// strikes.
type cutUpdate struct {
	l      *updates
	id     int64
	dialer faultconn.Dialer
	pool   OptimisticPool
}

// cutDSN is of pools whose connections are cut.
func cutDSN(db *suite.DB) string {
	dsn := db.DSN
	if !db.Postgres() {
		dsn = suite.AppendQuery(dsn, "readTimeout=2s") // nothing else bounds a commit of database/sql's
		if os.Getenv(suite.EnvSoak) == "" {
			dsn = suite.AppendQuery(dsn, "interpolateParams=true") // to close a prepared statement has no answer, for which a late call waits
		}
	}
	return dsn
}

// cutContext is that of a call that is cut. Slow cuts end with it.
func cutContext(t *testing.T, c suite.Cut) (context.Context, context.CancelFunc) {
	if c.Slow() {
		return context.WithTimeout(t.Context(), suite.CutTimeout)
	}
	return context.WithCancel(t.Context())
}

// unknownOutcomes counts them, and those of writes whose answer was lost.
type unknownOutcomes struct{ all, written atomic.Int64 }

func (u *unknownOutcomes) note(told error, n float64) {
	if errors.Is(told, dblock.ErrOutcomeUnknown) {
		u.all.Add(1)
		u.written.Add(int64(n))
	}
}

func (u *unknownOutcomes) check(t *testing.T) {
	t.Helper()
	assert.NotZero(t, u.all.Load(), "unknown outcomes: the test has cut no write")
	assert.NotZero(t, u.written.Load(), "written, of unknown outcomes")
}

func (l *updates) cutUpdate(t *testing.T) (x *cutUpdate, err error) {
	x = &cutUpdate{l: l, id: 1000 + lastCut.Add(1)}
	if _, err := l.ExecContext(t.Context(), fmt.Sprintf("INSERT INTO account VALUES (%d, 100, 1)", x.id)); err != nil {
		return nil, err
	}
	if x.pool, err = l.e.Open(t.Context(), cutDSN(l.DB), &x.dialer, 1); err != nil {
		return nil, err
	}
	_, err = x.pool.Update(t.Context(), Change{ID: x.id, Mutate: add(0)}) // statements are prepared by then
	return x, err
}

func (x *cutUpdate) end() {
	x.dialer.CloseAll()
	x.pool.Close()
}

// update adds 1. In the midst of its first attempt another session adds 1,000.
func (x *cutUpdate) update(ctx context.Context, t *testing.T, opts ...optimistic.Option) error {
	attempts := 0
	return errOf(x.pool.Update(ctx, Change{ID: x.id, Mutate: func(_ context.Context, a *Account) error {
		if attempts++; attempts == 1 {
			x.l.intrude(t, x.id)
		}
		a.Balance++
		return nil
	}}, opts...))
}

// times is how often 1 was added, when all that is under way has ended.
func (x *cutUpdate) times(t *testing.T) (n float64, err error) {
	query := fmt.Sprintf("SELECT balance %% 100 FROM account WHERE id = %d FOR UPDATE", x.id)
	return n, x.l.QueryRowContext(t.Context(), query).Scan(&n)
}

// cutAnywhere: an update that returns nil is written once. One that returns an error is not, unless
// the outcome is unknown.
func (l *updates) cutAnywhere(t *testing.T, opt func(*cutUpdate) optimistic.Option) {
	var outcomes unknownOutcomes
	suite.Everywhere(t, suite.Cuts(false), func(c suite.Cut, k int) (struck bool, err error) {
		x, err := l.cutUpdate(t)
		if err != nil {
			return false, err
		}
		defer x.end()
		ctx, cancel := cutContext(t, c)
		defer cancel()
		x.dialer.Arm(k, c.Mode, cancel)
		told := x.update(ctx, t, opt(x), optimistic.Backoff(0, 0))
		struck = x.dialer.Disarm()
		x.dialer.Release()
		x.dialer.CloseAll() // a server whose client is silent keeps what it has locked
		n, err := x.times(t)
		if err != nil {
			return struck, err
		}
		outcomes.note(told, n)
		if told != nil && struck && ctx.Err() == nil && !errors.Is(told, dblock.ErrOutcomeUnknown) &&
			!errors.Is(told, dblock.ErrUnavailable) && !errors.Is(told, faultconn.ErrCut) {
			return struck, fmt.Errorf("told without need: %w", told)
		}
		return struck, checkCut(told, n, struck || ctx.Err() != nil) // its time is short, and a busy machine may need more
	})
	outcomes.check(t)
}

// controlWritesTwice: to try again whatever the error is writes twice, if the answer was lost.
func controlWritesTwice(t *testing.T, l *updates) {
	for k := 1; ; k++ {
		x := must(l.cutUpdate(t))(t)
		x.dialer.Arm(k, faultconn.CutAfter, nil)
		for range 3 {
			if x.update(t.Context(), t) == nil {
				break
			}
		}
		struck := x.dialer.Disarm()
		n := must(x.times(t))(t)
		x.end()
		if n > 1 {
			return
		}
		require.True(t, struck, "the test would pass if unknown outcomes were repeated")
	}
}
