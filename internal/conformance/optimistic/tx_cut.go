package optimistic

import (
	"errors"
	"strconv"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// aCommitCutAnywhere: whoever is told that it is written has it written, whoever is told that nothing was written has not, and
// what is unknown is never run again.
func aCommitCutAnywhere(b *txBench) {
	run := b.open(1).Run
	unknown, lost := 0, 0 // lost: it is written, and the answer did not come
	for _, mode := range []faultconn.Mode{faultconn.CutBefore, faultconn.CutAfter} {
		for k := 1; ; k++ {
			before, runs := b.value(get1), 0
			err := run(b.Context(), TxOptions{}, func(tx Statements) error {
				runs++
				err := tx.Exec(add1)
				b.dialer.Arm(k, mode, nil)
				return err
			})
			struck := b.dialer.Disarm()
			if runs != 1 {
				b.Errorf("%v call %d: it ran %d times: %v", mode, k, runs, err)
			}
			written := b.written(before, errors.Is(err, dblock.ErrOutcomeUnknown))
			switch {
			case errors.Is(err, dblock.ErrOutcomeUnknown):
				unknown++
				if written {
					lost++
				}
			case written != (err == nil):
				b.Errorf("%v call %d: written is %v, and it says %v", mode, k, written, err)
			case struck && err != nil && !errors.Is(err, dblock.ErrUnavailable):
				b.Errorf("%v call %d: %v", mode, k, err)
			}
			if !struck {
				break
			}
		}
	}
	if unknown == 0 || lost == 0 {
		b.Errorf("%d outcomes were unknown, %d of them written: the test has cut no commit", unknown, lost)
	}
}

// written tells whether the row has changed. Where a commit may be under way, it waits for the row's lock first.
func (b *txBench) written(before int, underWay bool) bool {
	b.Helper()
	query := get1
	if underWay {
		query += " FOR UPDATE"
	}
	return b.value(query) != before
}

// poolsNoBrokenConnection: one that was killed under a transaction is not given out again.
func poolsNoBrokenConnection(b *txBench) {
	run := b.open(1).Run
	id, kill := "SELECT CONNECTION_ID()", "KILL "
	end := ""
	if b.e.Kind == devdb.Postgres {
		id, kill, end = "SELECT pg_backend_pid()", "SELECT pg_terminate_backend(", ")"
	}
	err := run(b.Context(), TxOptions{}, func(tx Statements) error {
		b.must(tx.Exec(add1))
		n, err := tx.Int(id)
		b.must(err)
		b.outside(kill + strconv.Itoa(n) + end)
		for err == nil { // the kill comes when the server gets to it
			err = tx.Exec(add1)
		}
		return err
	})
	if err == nil || errors.Is(err, dblock.ErrOutcomeUnknown) {
		b.Errorf("a killed transaction gave %v", err)
	}
	b.want(1)
	b.must(run(b.Context(), TxOptions{}, func(tx Statements) error { return tx.Exec(add1) }))
	b.want(2)
}
