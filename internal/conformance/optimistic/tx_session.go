package optimistic

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// sees reports whether a transaction that reads twice sees what another session writes in between:
// not in REPEATABLE READ.
func (b *txs) sees(t *testing.T, tx Statements) (changes bool) {
	t.Helper()
	first := must(tx.Int(get1))(t)
	b.Exec(t, add1)
	return must(tx.Int(get1))(t) != first
}

// session is a pool of one connection, with these defaults.
func (b *txs) session(t *testing.T, modes string) TxPool {
	t.Helper()
	statement := "SET SESSION TRANSACTION " + modes
	if b.Postgres() {
		statement = "SET SESSION CHARACTERISTICS AS TRANSACTION " + modes
	}
	pool := b.open(t, 1)
	require.NoError(t, pool.Plain(t.Context(), func(tx Statements) error { return tx.Exec(statement) }))
	return pool
}

// PinsItsIsolation: it has what it asks for, whatever the session's default is.
func (txTests) PinsItsIsolation(t *testing.T, b *txs) {
	for level, changes := range map[sql.IsolationLevel]bool{
		sql.LevelDefault: true, sql.LevelReadCommitted: true, sql.LevelRepeatableRead: false,
	} {
		for _, session := range []string{"ISOLATION LEVEL READ COMMITTED", "ISOLATION LEVEL REPEATABLE READ"} {
			require.NoError(t, b.session(t, session).Run(t.Context(), TxOptions{Isolation: level}, func(tx Statements) error {
				assert.Equal(t, changes, b.sees(t, tx), "%v in a session of %s", level, session)
				return nil
			}))
		}
	}
}

// LeaksNoIsolation: the next user of the connection has its own, whatever became of the
// transaction.
func (txTests) LeaksNoIsolation(t *testing.T, b *txs) {
	failed := errors.New("failed")
	for session, changes := range map[string]bool{"ISOLATION LEVEL READ COMMITTED": true, "ISOLATION LEVEL REPEATABLE READ": false} {
		pool := b.session(t, session)
		other := TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
		if !changes {
			other.Isolation = sql.LevelReadCommitted
		}
		for _, outcome := range []error{nil, failed} {
			require.ErrorIs(t, pool.Run(t.Context(), other, func(Statements) error { return outcome }), outcome)
			require.NoError(t, pool.Plain(t.Context(), func(tx Statements) error {
				assert.Equal(t, changes, b.sees(t, tx), "after %v, in a session of %s", outcome, session)
				return tx.Exec(add2)
			}))
		}
	}
}

// WritesWhateverTheDefault: in a session that is read-only by default.
func (txTests) WritesWhateverTheDefault(t *testing.T, b *txs) {
	pool := b.session(t, "READ ONLY")
	assert.Error(t, pool.Plain(t.Context(), adds1), "the control")
	require.NoError(t, pool.Run(t.Context(), TxOptions{}, adds1))
	b.is(t, 2)
}

// EndedByItsFunction: what ends the transaction within leaves no success to report.
func (txTests) EndedByItsFunction(t *testing.T, b *txs) {
	for _, end := range []string{"COMMIT", "ROLLBACK"} {
		runs := 0
		err := b.run(t.Context(), TxOptions{}, func(tx Statements) error { runs++; return tx.Exec(end) })
		assert.ErrorIs(t, err, dblock.ErrTxEnded, end)
		assert.Equal(t, 1, runs, end)
	}
}

// ALockTimeoutIsItsCallers: it is not run again, and comes as it is.
func (txTests) ALockTimeoutIsItsCallers(t *testing.T, b *txs) {
	runs := 0
	err := b.run(t.Context(), TxOptions{}, func(tx Statements) error {
		require.NoError(t, adds1(tx))
		return b.run(t.Context(), TxOptions{}, func(tx Statements) error {
			runs++
			return errOf(tx.Int(get1 + " FOR UPDATE NOWAIT"))
		})
	})
	assert.Error(t, err)
	assert.NotErrorIs(t, err, dblock.ErrConflict)
	assert.Equal(t, 1, runs)
}

// PoolsNoBrokenConnection: one that was killed under a transaction is not given out again.
func (txTests) PoolsNoBrokenConnection(t *testing.T, b *txs) {
	run := b.open(t, 1).Run
	id := "SELECT CONNECTION_ID()"
	if b.Postgres() {
		id = "SELECT pg_backend_pid()"
	}
	err := run(t.Context(), TxOptions{}, func(tx Statements) error {
		require.NoError(t, adds1(tx))
		require.NoError(t, b.EndSession(t.Context(), int64(must(tx.Int(id))(t)), false))
		for { // the kill comes when the server gets to it
			if err := adds1(tx); err != nil {
				return err
			}
		}
	})
	assert.Error(t, err)
	assert.NotErrorIs(t, err, dblock.ErrOutcomeUnknown)
	b.is(t, 1)
	require.NoError(t, run(t.Context(), TxOptions{}, adds1))
	b.is(t, 2)
}

// ACommitCutAnywhere: a transaction that returns nil is written, one that returns an error is not,
// and one whose outcome is unknown is never run again.
func (txFaultTests) ACommitCutAnywhere(t *testing.T, b *txs) {
	run := b.open(t, 1).Run
	var outcomes unknownOutcomes
	for _, mode := range []faultconn.Mode{faultconn.CutBefore, faultconn.CutAfter} {
		for k, struck := 1, true; struck; k++ {
			before, runs := b.Count(t, get1), 0
			told := run(t.Context(), TxOptions{}, func(tx Statements) error {
				runs++
				err := adds1(tx)
				b.dialer.Arm(k, mode, nil)
				return err
			})
			struck = b.dialer.Disarm()
			assert.Equal(t, 1, runs, "%v call %d: %v", mode, k, told)
			query := get1
			if errors.Is(told, dblock.ErrOutcomeUnknown) { // a commit may be under way
				query += " FOR UPDATE"
			} else if told != nil && struck {
				assert.ErrorIs(t, told, dblock.ErrUnavailable, "%v call %d", mode, k)
			}
			n := float64(b.Count(t, query) - before)
			outcomes.note(told, n)
			assert.NoError(t, checkCut(told, n, struck), "%v call %d", mode, k)
		}
	}
	outcomes.check(t)
}
