package optimistic

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/optimistic"
)

// cutWrite is a call that writes the row id of a trial with version 1 and, of UpdateMany, the next
// one. It is atomic. The query counts how often it has written.
type cutWrite[DB any] struct {
	count string
	run   func(ctx context.Context, x *cutTrial[DB]) error
}

func cutWrites[DB any](t *testing.T, b *env[DB]) map[string]cutWrite[DB] {
	table, mine := b.ints(t, "account"), set{"note": "mine"}
	require.NoError(t, table.Check(t.Context(), b.db))
	const (
		noted = "SELECT count(*) FROM account WHERE id = %[1]d AND note = 'mine' AND version = 2"
		added = "SELECT balance %% 100 FROM account WHERE id = %[1]d"
	)
	return map[string]cutWrite[DB]{
		"Update": {noted, func(ctx context.Context, x *cutTrial[DB]) error {
			return errOf(table.Update(ctx, x.pool.DB, x.id, 1, mine))
		}},
		"Any": {noted, func(ctx context.Context, x *cutTrial[DB]) error {
			return errOf(table.Any().Update(ctx, x.pool.DB, x.id, mine))
		}},
		"Touch": {"SELECT version - 1 FROM account WHERE id = %[1]d",
			func(ctx context.Context, x *cutTrial[DB]) error { return errOf(table.Touch(ctx, x.pool.DB, x.id, 1)) }},
		"Delete": {"SELECT 1 - count(*) FROM account WHERE id = %[1]d",
			func(ctx context.Context, x *cutTrial[DB]) error { return table.Delete(ctx, x.pool.DB, x.id, 1) }},
		"Upsert": {"SELECT count(*) FROM account WHERE id = -%[1]d", func(ctx context.Context, x *cutTrial[DB]) error {
			return errOf(table.Upsert(ctx, x.pool.DB, -x.id, optimistic.Absent[int64](), set{"balance": 0}))
		}},
		"UpdateMany": {"SELECT count(*) / 2.0 FROM account WHERE id IN (%[1]d, %[1]d + 1) AND note = 'mine' AND version = 2",
			func(ctx context.Context, x *cutTrial[DB]) error {
				changes := []change{{Key: x.id, Expected: 1, Set: mine}, {Key: x.id + 1, Expected: 1, Set: mine}}
				return errOf(table.UpdateMany(ctx, x.pool.DB, changes, optimistic.UpdateAllOrNothing))
			}},
		"a function": {added, func(ctx context.Context, x *cutTrial[DB]) error {
			return x.updateBesideAnother(ctx, t, b, optimistic.Backoff(0, 0))
		}},
		"a function under the lock": {added, func(ctx context.Context, x *cutTrial[DB]) error {
			return x.updateBesideAnother(ctx, t, b, optimistic.Backoff(0, 0), b.e.Escalate(1, x.id))
		}},
	}
}

// cutTrial is one trial: two rows of its own, and a pool of one connection on a faulty dialer.
type cutTrial[DB any] struct {
	id     int64
	dialer faultconn.Dialer
	pool   Pool[DB]
}

var lastCut atomic.Int64

func (b *env[DB]) cutTrial(t *testing.T) (x *cutTrial[DB], err error) {
	x = &cutTrial[DB]{id: 1000 + 2*lastCut.Add(1)}
	if _, err := b.ExecContext(t.Context(), fmt.Sprintf("INSERT INTO account (id, balance) VALUES (%d, 0), (%d, 0)", x.id, x.id+1)); err != nil {
		return nil, err
	}
	dsn := b.DSN
	if !b.Postgres() {
		dsn = suite.AppendQuery(dsn, "readTimeout=2s") // nothing else bounds a commit of database/sql's
		if os.Getenv(suite.EnvSoak) == "" {
			dsn = suite.AppendQuery(dsn, "interpolateParams=true") // to close a prepared statement has no answer, for which a late call waits
		}
	}
	if x.pool, err = b.e.Open(dsn, &x.dialer, 1); err == nil {
		_, err = b.e.On(x.pool.DB).Load(t.Context(), x.id) // dials
	}
	return x, err
}

func (x *cutTrial[DB]) end() {
	x.dialer.CloseAll()
	x.pool.Close()
}

// updateBesideAnother adds 1 by a function. In the midst of its first attempt another session adds
// 1,000.
func (x *cutTrial[DB]) updateBesideAnother(ctx context.Context, t *testing.T, b *env[DB], opts ...optimistic.Option) error {
	attempts := 0
	return errOf(b.e.On(x.pool.DB).Update(ctx, Change{ID: x.id, Mutate: func(_ context.Context, a *Account) error {
		if attempts++; attempts == 1 {
			b.intrude(t, x.id)
		}
		a.Balance++
		return nil
	}}, opts...))
}

// written counts when all that is under way has ended: it waits for the locks of the rows.
func (b *env[DB]) written(t *testing.T, count string, id int64) (n float64, err error) {
	tx, err := b.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelSerializable}) // on MySQL and MariaDB all it reads is locked
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }()
	if b.Postgres() { // an insert that is under way has no row to wait for
		_, err = tx.ExecContext(t.Context(), "LOCK TABLE account IN SHARE MODE")
	}
	if err == nil {
		err = tx.QueryRowContext(t.Context(), fmt.Sprintf(count, id)).Scan(&n)
	}
	return n, err
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

// checkCut says what is wrong with a caller's answer to a write that was made n times.
func checkCut(told error, n float64, disturbed bool) error {
	unknown := errors.Is(told, dblock.ErrOutcomeUnknown)
	switch {
	case n != 0 && n != 1, !unknown && (told == nil) != (n == 1):
		return fmt.Errorf("the answer is %w, and it was written %v times", told, n)
	case told != nil && !disturbed:
		return fmt.Errorf("undisturbed, and yet: %w", told)
	case errors.Is(told, context.Canceled), errors.Is(told, context.DeadlineExceeded): // before a conflict was repeated
	case errors.Is(told, optimistic.ErrStale), errors.Is(told, optimistic.ErrNotFound):
		return fmt.Errorf("there is no other writer, and yet: %w", told)
	}
	return nil
}

// AWriteCutAnywhere: a write that returns nil is written, once. One that returns a conflict, or
// another error, is not. If the outcome is unknown it is either, whole. There is no conflict, for
// there is no other writer, or one that a repeat gets over.
func (faultTests[DB]) AWriteCutAnywhere(t *testing.T, b *env[DB]) {
	for name, w := range cutWrites(t, b) {
		t.Run(name, func(t *testing.T) {
			var outcomes unknownOutcomes
			suite.Everywhere(t, suite.Cuts(false), func(c suite.Cut, k int) (struck bool, err error) {
				x, err := b.cutTrial(t)
				if err != nil {
					return false, err
				}
				defer x.end()
				ctx, cancel := context.WithCancel(t.Context())
				if c.Slow() { // it ends with its context
					ctx, cancel = context.WithTimeout(t.Context(), c.Timeout)
				}
				defer cancel()
				x.dialer.Arm(k, c.Mode, cancel)
				told := w.run(ctx, x)
				struck = x.dialer.Disarm()
				x.dialer.Release()
				x.dialer.CloseAll() // a server whose client is silent keeps what it has locked
				n, err := b.written(t, w.count, x.id)
				if err != nil {
					return struck, err
				}
				if outcomes.note(told, n); told != nil && ctx.Err() == nil && !isLost(told) && !errors.Is(told, faultconn.ErrCut) {
					return struck, fmt.Errorf("an error without need: %w", told)
				}
				return struck, checkCut(told, n, struck || ctx.Err() != nil)
			})
			outcomes.check(t)
		})
	}
}

// ARepeatIsWrittenOnce: the same write with the same version may be sent again after an unknown
// outcome, until the answer is that it is written, or a conflict.
func (tests[DB]) ARepeatIsWrittenOnce(t *testing.T, b *env[DB]) {
	w := cutWrites(t, b)["Update"]
	for _, mode := range []faultconn.Mode{faultconn.CutAfter, faultconn.CutBefore} {
		for k, struck := 1, true; struck; k++ {
			x := must(b.cutTrial(t))(t)
			x.dialer.Arm(k, mode, nil)
			told := w.run(t.Context(), x)
			for n := 0; n < 3 && isLost(told); n++ {
				told = w.run(t.Context(), x)
			}
			struck = x.dialer.Disarm()
			n := must(b.written(t, w.count, x.id))(t)
			x.end()
			assert.True(t, told == nil || errors.Is(told, optimistic.ErrStale), "%v", told)
			assert.EqualValues(t, 1, n, "times that it was written")
		}
	}
}

// isLost reports that a connection was lost.
func isLost(err error) bool {
	return errors.Is(err, dblock.ErrOutcomeUnknown) || errors.Is(err, dblock.ErrUnavailable)
}
