package optimistic

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// Tx is a driver's RunTx.
type Tx struct {
	Kind devdb.Kind

	// Open makes a pool of conns connections, all of the dialer's.
	Open func(ctx context.Context, dsn string, dialer *faultconn.Dialer, conns int) (TxPool, error)
}

// TxPool is a pool, and what runs on it.
type TxPool struct {
	Run   RunTx
	Plain func(ctx context.Context, fn func(Statements) error) error // a transaction of the driver's, as the session's defaults are
	Close func()
}

// RunTx is a driver's function on one pool. fn gets what runs statements in the transaction.
type RunTx func(ctx context.Context, o TxOptions, fn func(Statements) error) error

// TxOptions are what the drivers have in common.
type TxOptions struct {
	Isolation sql.IsolationLevel
	ReadOnly  bool
	Attempts  int
	OnRetry   func(attempt int, err error)
}

// Statements run in a transaction.
type Statements struct {
	Exec func(query string) error
	Int  func(query string) (int, error)
	Lock func(id int) error // the driver's LockRow, on t

	Named func(key string) error // the driver's LockTx; nil if it has none
}

// The tests of doc.go are methods of these types.
type (
	txTests      struct{}
	txFaultTests struct{}
)

// Run runs the suite.
func (e Tx) Run(t *testing.T) { suite.RunEach(t, txTests{}, e.env) }

// RunFaults runs the tests of faults and crowds.
func (e Tx) RunFaults(t *testing.T) { suite.RunEach(t, txFaultTests{}, e.env) }

func (e Tx) env(t *testing.T) *txs {
	t.Helper()
	b := &txs{DB: suite.NewDB(t, e.Kind), e: e}
	b.Exec(t, "CREATE TABLE t (id int PRIMARY KEY, v int NOT NULL)")
	b.Exec(t, "INSERT INTO t VALUES (1, 1), (2, 1)")
	b.run = b.open(t, 4).Run
	return b
}

// txs is a database with the table t(id, v), rows 1 and 2 with the value 1.
type txs struct {
	*suite.DB
	e      Tx
	dialer faultconn.Dialer
	run    RunTx // on a pool of 4
}

// open makes another pool.
func (b *txs) open(t *testing.T, conns int) TxPool {
	t.Helper()
	pool := must(b.e.Open(t.Context(), b.DSN, &b.dialer, conns))(t)
	t.Cleanup(pool.Close)
	return pool
}

func (b *txs) is(t *testing.T, want int64) { t.Helper(); assert.Equal(t, want, b.Count(t, get1)) }

const (
	add1 = "UPDATE t SET v = v + 1 WHERE id = 1"
	add2 = "UPDATE t SET v = v + 1 WHERE id = 2"
	get1 = "SELECT v FROM t WHERE id = 1"
	sum  = "SELECT sum(v) FROM t"
)

func adds1(tx Statements) error { return tx.Exec(add1) }

func (txTests) CommitsOrRollsBack(t *testing.T, b *txs) {
	require.NoError(t, b.run(t.Context(), TxOptions{}, adds1))
	b.is(t, 2)
	mine := errors.New("fn's own")
	err := b.run(t.Context(), TxOptions{}, func(tx Statements) error { return errors.Join(adds1(tx), mine) })
	assert.ErrorIs(t, err, mine)
	b.is(t, 2)
}

func (txTests) APanicRollsBack(t *testing.T, b *txs) {
	run := b.open(t, 1).Run
	assert.PanicsWithValue(t, "fn's own", func() {
		_ = run(t.Context(), TxOptions{}, func(tx Statements) error {
			require.NoError(t, adds1(tx))
			panic("fn's own")
		})
	})
	require.NoError(t, run(t.Context(), TxOptions{}, func(tx Statements) error { return tx.Exec(add2) })) // the connection is free
	b.is(t, 1)
}

func (txTests) RefusesWrites(t *testing.T, b *txs) {
	err := b.run(t.Context(), TxOptions{ReadOnly: true}, adds1)
	require.Error(t, err)
	assert.Contains(t, strings.ReplaceAll(strings.ToLower(err.Error()), "read only", "read-only"), "read-only transaction")
	b.is(t, 1)
	require.NoError(t, b.run(t.Context(), TxOptions{ReadOnly: true}, func(tx Statements) error {
		v, err := tx.Int(get1)
		assert.Equal(t, 1, v)
		return err
	}))
}

func (txTests) EndsWithItsContext(t *testing.T, b *txs) {
	ended := errors.New("the service stops")
	ctx, cancel := context.WithCancelCause(t.Context())
	err := b.run(ctx, TxOptions{}, func(tx Statements) error {
		defer cancel(ended)
		return adds1(tx)
	})
	assert.ErrorIs(t, err, ended)
	assert.NotErrorIs(t, err, dblock.ErrOutcomeUnknown)
	b.is(t, 1)
	err = b.run(ctx, TxOptions{}, func(Statements) error { t.Error("it ran"); return nil })
	assert.ErrorIs(t, err, ended)
	require.NoError(t, b.run(t.Context(), TxOptions{}, adds1)) // the row is free
}

func (txTests) TxRefusesWhatMakesNoSense(t *testing.T, b *txs) {
	for name, o := range map[string]TxOptions{
		"Attempts": {Attempts: -1}, "more attempts": {Attempts: 1001}, "Isolation": {Isolation: sql.LevelLinearizable},
	} {
		badInput(t, name, b.run(t.Context(), o, func(Statements) error { t.Error("it ran"); return nil }))
	}
	assert.ErrorIs(t, b.run(t.Context(), TxOptions{}, nil), dblock.ErrInvalid)
}

// cross has two lock the rows in opposite orders, once: the first time each has its first row
// before it asks for its second.
func (b *txs) cross(t *testing.T, lock func(tx Statements, id int) error, o TxOptions, fn func(tx Statements, err error) error) [2]error {
	meet := meeting()
	rows := [2][2]int{{1, 2}, {2, 1}}
	return two(func(n int) error {
		return b.run(t.Context(), o, func(tx Statements) error {
			if err := lock(tx, rows[n][0]); err != nil {
				return err
			}
			meet(n)
			return fn(tx, lock(tx, rows[n][1]))
		})
	})
}

func (tx Statements) lock(id int) error { return tx.Lock(id) }

func addsTo(tx Statements, id int) error { return tx.Exec(map[int]string{1: add1, 2: add2}[id]) }

func (txTests) RunsAgainAfterADeadlock(t *testing.T, b *txs) { b.runsAgain(t, addsTo, "") }

func (txTests) RunsAgainAfterLocksMet(t *testing.T, b *txs) {
	b.runsAgain(t, Statements.lock, "UPDATE t SET v = v + 1")
}

// runsAgain: a deadlock is one if the server says so, or what locks rows. Each run that locks both
// rows then runs a statement.
func (b *txs) runsAgain(t *testing.T, lock func(Statements, int) error, then string) {
	t.Helper()
	var runs, retries atomic.Int64
	errs := b.cross(t, lock, TxOptions{OnRetry: func(int, error) { retries.Add(1) }}, func(tx Statements, err error) error {
		if runs.Add(1); err == nil && then != "" {
			err = tx.Exec(then)
		}
		return err
	})
	require.NoError(t, errors.Join(errs[:]...))
	assert.Equal(t, runs.Load()-2, retries.Load())
	assert.NotZero(t, retries.Load())
	assert.EqualValues(t, 6, b.Count(t, sum))
}

func (txTests) GivesUpWithTheConflict(t *testing.T, b *txs) {
	conflict := "SIGNAL SQLSTATE '40001'"
	if b.Postgres() {
		conflict = "DO $$ BEGIN RAISE SQLSTATE '40001'; END $$"
	}
	for attempts, text := range map[int]string{1: "run once", 3: "run 3 times"} {
		runs := 0
		err := b.run(t.Context(), TxOptions{Attempts: attempts}, func(tx Statements) error {
			runs++
			require.NoError(t, adds1(tx))
			return tx.Exec(conflict)
		})
		assert.ErrorIs(t, err, dblock.ErrConflict)
		assert.ErrorContains(t, err, text)
		assert.Equal(t, attempts, runs)
	}
	b.is(t, 1)
}

func (txTests) KeepsInvariants(t *testing.T, b *txs) {
	assert.EqualValues(t, 1, b.skew(t, sql.LevelSerializable))
}

func (txTests) ControlBreaksInvariants(t *testing.T, b *txs) {
	assert.EqualValues(t, 0, b.skew(t, sql.LevelReadCommitted))
}

// skew has two give up one row each, if the rows' sum says that the other stays: what each decides
// by, the other changes.
func (b *txs) skew(t *testing.T, isolation sql.IsolationLevel) (left int64) {
	meet := meeting()
	errs := two(func(n int) error {
		return b.run(t.Context(), TxOptions{Isolation: isolation}, func(tx Statements) error {
			left, err := tx.Int(sum)
			if err != nil {
				return err
			}
			if meet(n); left < 2 {
				return nil
			}
			return tx.Exec(fmt.Sprintf("UPDATE t SET v = 0 WHERE id = %d", n+1))
		})
	})
	require.NoError(t, errors.Join(errs[:]...))
	return b.Count(t, sum)
}

// ASwallowedConflict: it is an error, never a success. On MySQL the server writes what comes after.
func (txTests) ASwallowedConflict(t *testing.T, b *txs) {
	b.Exec(t, "INSERT INTO t VALUES (3, 0), (4, 0)")
	errs := b.cross(t, addsTo, TxOptions{}, func(tx Statements, err error) error {
		if err != nil {
			_ = tx.Exec("UPDATE t SET v = 7 WHERE id = 3")
		}
		return nil
	})
	assert.NotEqual(t, errs[0] == nil, errs[1] == nil, "%v", errs)
	failed := errors.Join(errs[:]...)
	assert.ErrorIs(t, failed, dblock.ErrTxEnded)
	assert.NotErrorIs(t, failed, dblock.ErrConflict)
	after := int64(7)
	if b.Postgres() {
		after = 0
	}
	assert.Equal(t, 4+after, b.Count(t, sum))
}

// ControlSwallows: the plain way of database/sql reports success on MySQL, where half of it is
// written.
func (txTests) ControlSwallows(t *testing.T, b *txs) {
	if b.Postgres() {
		return // its drivers see it by the answer to COMMIT
	}
	meet := meeting()
	rows := [2][2]string{{add1, add2}, {add2, add1}}
	errs := two(func(n int) error {
		tx, err := b.BeginTx(t.Context(), nil)
		if err != nil {
			return err
		}
		_, _ = tx.ExecContext(t.Context(), rows[n][0])
		meet(n)
		_, _ = tx.ExecContext(t.Context(), rows[n][1])
		return tx.Commit()
	})
	assert.NoError(t, errors.Join(errs[:]...))
	assert.EqualValues(t, 4, b.Count(t, sum), "half of it")
}
