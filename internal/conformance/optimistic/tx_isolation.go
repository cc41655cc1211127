package optimistic

import (
	"database/sql"
	"errors"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
)

// sees tells whether a transaction that reads twice sees what somebody else writes in between: not in REPEATABLE READ.
func (b *txBench) sees(tx Statements) (changes bool) {
	b.Helper()
	first, err := tx.Int(get1)
	b.must(err)
	b.outside(add1)
	second, err := tx.Int(get1)
	b.must(err)
	return first != second
}

// session is a pool of one connection, whose defaults are these.
func (b *txBench) session(modes string) TxPool {
	b.Helper()
	set := "SET SESSION TRANSACTION " + modes
	if b.e.Kind == devdb.Postgres {
		set = "SET SESSION CHARACTERISTICS AS TRANSACTION " + modes
	}
	pool := b.open(1)
	b.must(pool.Plain(b.Context(), func(tx Statements) error { return tx.Exec(set) }))
	return pool
}

// pinsItsIsolation: it has what it asks for, whatever the session's default is.
func pinsItsIsolation(b *txBench) {
	for level, changes := range map[sql.IsolationLevel]bool{
		sql.LevelDefault: true, sql.LevelReadCommitted: true, sql.LevelRepeatableRead: false,
	} {
		for _, session := range []string{"ISOLATION LEVEL READ COMMITTED", "ISOLATION LEVEL REPEATABLE READ"} {
			b.must(b.session(session).Run(b.Context(), TxOptions{Isolation: level}, func(tx Statements) error {
				if got := b.sees(tx); got != changes {
					b.Errorf("%v in a session of %s: that it sees changes is %v", level, session, got)
				}
				return nil
			}))
		}
	}
}

// leaksNoIsolation: what it has had is not had by who gets the connection next, whatever became of it.
func leaksNoIsolation(b *txBench) {
	failed := errors.New("failed")
	for session, changes := range map[string]bool{"ISOLATION LEVEL READ COMMITTED": true, "ISOLATION LEVEL REPEATABLE READ": false} {
		pool := b.session(session)
		for _, outcome := range []error{nil, failed} {
			other := TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
			if !changes {
				other = TxOptions{Isolation: sql.LevelReadCommitted, ReadOnly: true}
			}
			if err := pool.Run(b.Context(), other, func(Statements) error { return outcome }); !errors.Is(err, outcome) {
				b.Fatal(err)
			}
			b.must(pool.Plain(b.Context(), func(tx Statements) error {
				if got := b.sees(tx); got != changes {
					b.Errorf("after %v: in a session of %s that one sees changes is %v", outcome, session, got)
				}
				return tx.Exec(add2)
			}))
		}
	}
}

// writesWhateverTheDefault: a session that is read-only is not.
func writesWhateverTheDefault(b *txBench) {
	pool := b.session("READ ONLY")
	if err := pool.Plain(b.Context(), func(tx Statements) error { return tx.Exec(add1) }); err == nil {
		b.Error("the test would pass without the pin")
	}
	b.must(pool.Run(b.Context(), TxOptions{}, func(tx Statements) error { return tx.Exec(add1) }))
	b.want(2)
}

// endedByItsFunction: what ends the transaction within leaves no success to report.
func endedByItsFunction(b *txBench) {
	for _, end := range []string{"COMMIT", "ROLLBACK"} {
		runs := 0
		err := b.run(b.Context(), TxOptions{}, func(tx Statements) error { runs++; return tx.Exec(end) })
		if !errors.Is(err, dblock.ErrTxEnded) || runs != 1 {
			b.Errorf("%s: %d runs, %v", end, runs, err)
		}
	}
}

// aLockTimeoutIsItsCallers: it is not run again, and comes as it is.
func aLockTimeoutIsItsCallers(b *txBench) {
	runs := 0
	err := b.run(b.Context(), TxOptions{}, func(tx Statements) error {
		b.must(tx.Exec(add1))
		return b.run(b.Context(), TxOptions{}, func(tx Statements) error {
			runs++
			_, err := tx.Int(get1 + " FOR UPDATE NOWAIT")
			return err
		})
	})
	if err == nil || errors.Is(err, dblock.ErrConflict) || runs != 1 {
		b.Errorf("%d runs, %v", runs, err)
	}
}
