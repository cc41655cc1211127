package optimistic

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/optimistic"
)

// Optimistic is a driver's Update and Do.
type Optimistic struct {
	Kind devdb.Kind

	// Open makes a pool of conns connections, all of the dialer's.
	Open func(ctx context.Context, dsn string, dialer *faultconn.Dialer, conns int) (OptimisticPool, error)

	// Settings are added to a DSN for sessions that are not as usual.
	Settings map[string]string
}

// OptimisticPool is a pool, and what runs on it.
type OptimisticPool struct {
	Accounts

	// InTx runs fn in a transaction of the driver's, and commits it if fn's error is nil.
	InTx func(ctx context.Context, isolation sql.IsolationLevel, fn func(Accounts) error) error

	Do       func(ctx context.Context, fn func(tx Accounts, attempt int) error, opts ...optimistic.Option) error
	Escalate func(n int, id int64) optimistic.Option // by the row's own lock
	Close    func()
}

// Account is a row of the table account(id, balance, version).
type Account struct{ ID, Balance, Version int64 }

// Accounts read and write them: on a pool, or in a transaction.
type Accounts struct {
	Update func(ctx context.Context, c Change, opts ...optimistic.Option) (Account, error) // the driver's
	Load   func(ctx context.Context, id int64) (Account, error)
	Save   func(ctx context.Context, a Account, blind bool) (Account, error)
}

// Change is an update. One that is blind is the control: it leaves the version out of its WHERE.
type Change struct {
	ID     int64
	Blind  bool
	Mutate func(context.Context, *Account) error
}

// ExpectedOf is the row as errors name it.
func (a Account) ExpectedOf() optimistic.Row {
	return optimistic.Row{Table: "account", Key: a.ID, Expected: a.Version}
}

// Run runs the suite.
func (e Optimistic) Run(t *testing.T) {
	e.run(t, map[string]func(*testing.T, *updates){
		"RepeatsOnWhatIsThere":         repeatsOnWhatIsThere,
		"ControlOverwritesBlindly":     controlOverwritesBlindly,
		"TellsStaleFromGone":           tellsStaleFromGone,
		"UpdatesFromZero":              updatesFromZero,
		"CountsOnOneRow":               func(t *testing.T, l *updates) { countsOnRows(t, l, 1) },
		"IsACASRegister":               isACASRegister,
		"ControlIsNoCASRegister":       controlIsNoCASRegister,
		"OneAttemptInACallersTx":       oneAttemptInACallersTx,
		"EscalatesAndGetsThrough":      escalatesAndGetsThrough,
		"ControlGivesUpWithoutTheLock": controlGivesUpWithoutTheLock,
		"DoWritesAllOrNothing":         doWritesAllOrNothing,
		"NestedInOppositeOrders":       nestedInOppositeOrders,
		"DoRollsBackAPanic":            doRollsBackAPanic,
		"TakesNoMoreRoundTrips":        takesNoMoreRoundTrips,
	})
	for name, setting := range e.Settings {
		t.Run("With "+name, func(t *testing.T) {
			t.Parallel()
			updatesAsUsual(t, e.updates(t, setting))
		})
	}
}

// RunFaults runs the tests of faults and crowds.
func (e Optimistic) RunFaults(t *testing.T) {
	e.run(t, map[string]func(*testing.T, *updates){
		"AnUpdateCutAnywhere": func(t *testing.T, l *updates) {
			l.cutAnywhere(t, func(*cutUpdate) optimistic.Option { return optimistic.Attempts(10) })
		},
		"AnEscalatedUpdateCutAnywhere": func(t *testing.T, l *updates) {
			l.cutAnywhere(t, func(x *cutUpdate) optimistic.Option { return x.pool.Escalate(1, x.id) })
		},
		"ControlWritesTwice": controlWritesTwice,
		"CountsOnManyRows":   func(t *testing.T, l *updates) { countsOnRows(t, l, 1000) },
	})
}

func (e Optimistic) run(t *testing.T, tests map[string]func(*testing.T, *updates)) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, e.updates(t, ""))
		})
	}
}

// updates is a database with accounts 1 and 2, which have 100 each.
type updates struct {
	*suite.DB
	e    Optimistic
	dsn  string         // with the setting
	pool OptimisticPool // of 16 connections
}

func (e Optimistic) updates(t *testing.T, setting string) *updates {
	t.Helper()
	l := &updates{DB: suite.NewDB(t, e.Kind), e: e}
	l.Exec(t, "CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, version BIGINT NOT NULL)")
	l.Exec(t, "INSERT INTO account VALUES (1, 100, 1), (2, 100, 1)")
	l.dsn = l.DSN
	if setting != "" {
		l.dsn = suite.AppendQuery(l.dsn, setting)
	}
	l.pool = l.open(t, &faultconn.Dialer{}, 16)
	return l
}

func (l *updates) open(t *testing.T, dialer *faultconn.Dialer, conns int) OptimisticPool {
	t.Helper()
	pool := must(l.e.Open(t.Context(), l.dsn, dialer, conns))(t)
	t.Cleanup(pool.Close)
	return pool
}

// is fails unless a row has a balance and a version. It waits for writers of the row.
func (l *updates) is(t *testing.T, id, balance, version int64) {
	t.Helper()
	assert.Equal(t, Account{id, balance, version}, l.row(t, id))
}

func (l *updates) row(t *testing.T, id int64) (a Account) {
	t.Helper()
	query := fmt.Sprintf("SELECT id, balance, version FROM account WHERE id = %d FOR UPDATE", id)
	require.NoError(t, l.QueryRowContext(t.Context(), query).Scan(&a.ID, &a.Balance, &a.Version))
	return a
}

// add is a change of the balance.
func add(n int64) func(context.Context, *Account) error {
	return func(_ context.Context, a *Account) error {
		a.Balance += n
		return nil
	}
}

// intrude adds 1,000 to a row as another session, in the midst of an update.
func (l *updates) intrude(t *testing.T, id int64) {
	t.Helper()
	_, err := l.ExecContext(context.WithoutCancel(t.Context()), "UPDATE account SET balance = balance + 1000, version = version + 1 WHERE id = "+itoa(id))
	assert.NoError(t, err)
}

// disturbed is an update of account 1 in whose midst, the first times, another session adds 1,000.
func (l *updates) disturbed(t *testing.T, blind bool, times int, opts ...optimistic.Option) (got Account, attempts int, err error) {
	got, err = l.pool.Update(t.Context(), Change{ID: 1, Blind: blind, Mutate: func(_ context.Context, a *Account) error {
		if attempts++; attempts <= times {
			l.intrude(t, 1)
		}
		a.Balance += 10
		return nil
	}}, opts...)
	return got, attempts, err
}

// repeats fails unless an update that meets another one so often returns the row as it is then.
func (l *updates) repeats(t *testing.T, times int) {
	t.Helper()
	before := l.row(t, 1)
	got, attempts, err := l.disturbed(t, false, times)
	require.NoError(t, err)
	assert.Equal(t, times+1, attempts)
	assert.Equal(t, Account{1, before.Balance + int64(times)*1000 + 10, before.Version + int64(times) + 1}, got)
	assert.Equal(t, got, l.row(t, 1))
}

func repeatsOnWhatIsThere(t *testing.T, l *updates) {
	l.repeats(t, 2)
	_, attempts, err := l.disturbed(t, false, 9, optimistic.Attempts(3))
	conflict := suite.As[*optimistic.ConflictError](t, err)
	assert.Equal(t, []any{3, 3, int64(1)}, []any{attempts, conflict.Attempts, conflict.Key})
	l.is(t, 1, 5110, 7)
}

// controlOverwritesBlindly: without the version the other write is lost, without an error.
func controlOverwritesBlindly(t *testing.T, l *updates) {
	_, _, err := l.disturbed(t, true, 1)
	require.NoError(t, err)
	assert.EqualValues(t, 110, l.row(t, 1).Balance)
}

func tellsStaleFromGone(t *testing.T, l *updates) {
	look := func() (int64, error) {
		a, err := l.pool.Load(t.Context(), 1)
		return a.Version, err
	}
	_, _, err := l.disturbed(t, false, 1, optimistic.Attempts(1))
	conflict := suite.As[*optimistic.ConflictError](t, optimistic.Diagnose(err, look))
	assert.Equal(t, []any{int64(1), int64(2)}, []any{conflict.Expected, conflict.Actual})
	_, err = l.pool.Update(t.Context(), Change{ID: 1, Mutate: func(context.Context, *Account) error {
		l.Exec(t, "DELETE FROM account WHERE id = 1")
		return nil
	}}, optimistic.Attempts(1))
	err = optimistic.Diagnose(err, look)
	assert.ErrorIs(t, err, optimistic.ErrNotFound)
	assert.NotErrorIs(t, err, optimistic.ErrConflict)
}

// updatesFromZero: the caller's own queries may have versions that begin at 0.
func updatesFromZero(t *testing.T, l *updates) {
	l.Exec(t, "UPDATE account SET version = 0 WHERE id = 1")
	l.repeats(t, 1)
	l.Exec(t, "UPDATE account SET version = 0 WHERE id = 1")
	_, _, err := l.disturbed(t, false, 1, optimistic.Attempts(1))
	assert.Equal(t, int64(0), suite.As[*optimistic.ConflictError](t, err).Expected)
}

// crowd has callers add 1 to rows, as the n-th call says, with the option that lets each of them
// through.
func (l *updates) crowd(t *testing.T, callers, each int, rowOf func(n int64) int64) (calls int64) {
	var n atomic.Int64
	suite.Crowd(callers, func(int) {
		for range each {
			id := rowOf(n.Add(1))
			assert.NoError(t, errOf(l.pool.Update(t.Context(), Change{ID: id, Mutate: add(1)}, l.pool.Escalate(3, id))))
		}
	})
	return n.Load()
}

// crowdEach is how many updates each of 64 makes.
func crowdEach() int {
	if os.Getenv(suite.EnvSoak) != "" {
		return 200
	}
	return 20
}

func countsOnRows(t *testing.T, l *updates, rows int64) {
	l.Exec(t, "DELETE FROM account")
	var all []string
	for id := range rows {
		all = append(all, fmt.Sprintf("(%d, 100, 1)", id+1))
	}
	l.Exec(t, "INSERT INTO account VALUES "+strings.Join(all, ", "))
	calls := l.crowd(t, 64, crowdEach(), func(n int64) int64 { return 1 + n*7919%rows })
	assert.Equal(t, calls, l.Count(t, "SELECT SUM(balance - 100) FROM account"))
	assert.Equal(t, calls, l.Count(t, "SELECT SUM(version - 1) FROM account"))
}

// updatesAsUsual is for sessions that are not: there is no false success, and no end of repeating.
func updatesAsUsual(t *testing.T, l *updates) {
	calls := l.crowd(t, 8, 10, func(n int64) int64 { return 1 + n%2 })
	one, other := l.row(t, 1), l.row(t, 2)
	assert.Equal(t, []int64{200 + calls, 2 + calls}, []int64{one.Balance + other.Balance, one.Version + other.Version})
	l.repeats(t, 2)
	_, attempts, err := l.disturbed(t, false, 99, optimistic.Attempts(3))
	assert.ErrorIs(t, err, optimistic.ErrConflict)
	assert.Equal(t, 3, attempts)
	// A change that is none still has a new version, or a driver would report that no row has
	// changed.
	assert.NoError(t, errOf(l.pool.Update(t.Context(), Change{ID: 2, Mutate: add(0)})), "a row that stays as it is")
	oneAttemptInACallersTx(t, l)
	doWritesAllOrNothing(t, l)
}

// takesNoMoreRoundTrips: as many as the two statements by hand.
func takesNoMoreRoundTrips(t *testing.T, l *updates) {
	var dialer faultconn.Dialer
	pool := l.open(t, &dialer, 1)
	trips := func(f func() error) int {
		require.NoError(t, f()) // statements are prepared by then
		dialer.Arm(0, 0, nil)
		require.NoError(t, f())
		return dialer.Writes()
	}
	byHand := trips(func() error {
		a, err := pool.Load(t.Context(), 1)
		a.Balance++
		return errors.Join(err, errOf(pool.Save(t.Context(), a, false)))
	})
	ours := trips(func() error { return errOf(pool.Update(t.Context(), Change{ID: 1, Mutate: add(1)})) })
	assert.Equal(t, byHand, ours)
	assert.GreaterOrEqual(t, byHand, 2)
}

// oneAttemptInACallersTx: two have read the row before either writes it, in transactions of their
// own. One of them can't have it, and dblock does not repeat what is the caller's.
func oneAttemptInACallersTx(t *testing.T, l *updates) {
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		before, meet := l.row(t, 1), meeting()
		var attempts [2]int
		errs := two(func(n int) error {
			return l.pool.InTx(t.Context(), level, func(tx Accounts) error {
				return errOf(tx.Update(t.Context(), Change{ID: 1, Mutate: func(_ context.Context, a *Account) error {
					attempts[n]++
					meet(n)
					a.Balance++
					return nil
				}}, optimistic.Attempts(5), l.pool.Escalate(1, 1), optimistic.RetryIf(func(error) bool { return true })))
			})
		})
		assert.Equal(t, [2]int{1, 1}, attempts)
		require.NotEqual(t, errs[0] == nil, errs[1] == nil, "%v: %v", level, errs)
		lost := errors.Join(errs[:]...)
		var conflict *optimistic.ConflictError
		assert.True(t, errors.As(lost, &conflict) && conflict.Attempts == 1 || errors.Is(lost, dblock.ErrConflict), "%v: %v", level, lost)
		assert.ErrorContains(t, lost, "the transaction is the caller's", level)
		l.is(t, 1, before.Balance+1, before.Version+1)
	}
}
