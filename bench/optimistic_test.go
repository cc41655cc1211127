package bench

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/optimistic"
)

// TestOptimistsCount: what is reported to the callers is what is in the accounts.
func TestOptimistsCount(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		for _, s := range optimists() {
			t.Run(string(kind)+"/"+s.Name, func(t *testing.T) {
				t.Parallel()
				const clients = 8
				env := &Env{Kind: kind, Server: testdb.Server(t, kind), DSN: testdb.DSN(t, kind), Clients: clients, Conns: clients}
				limitCounts(t, env, s)
			})
		}
	}
}

// TestALostUpdateIsNoticed: callers that overwrite another caller's write end the run.
func TestALostUpdateIsNoticed(t *testing.T) {
	t.Parallel()
	for name, table := range map[string]*ledger{"": {}, "a balance": {lost: 1}, "a version": {unversioned: 1}} {
		add := func(accounts, context.Context, int64) error { table.writes++; return nil }
		w := &optimisticWorkload{pools: make([]accounts, 1), add: add, hot: true, written: table.written}
		round, err := w.Round(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		table.begun = true
		for id := range 2 {
			op, err := round.Client(id)
			if err != nil {
				t.Fatal(err)
			}
			if n, err := op(t.Context()); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		if err := round.Check(t.Context(), 2); (err == nil) != (name == "") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// ledger counts writes, and forgets some once they have begun.
type ledger struct {
	writes, lost, unversioned int64
	begun                     bool
}

func (l *ledger) written(context.Context) (balances, versions int64, err error) {
	if !l.begun {
		return 0, 0, nil
	}
	return l.writes - l.lost, l.writes - l.unversioned, nil
}

// TestAConflictIsAFailure: it is counted, and no end of the run.
func TestAConflictIsAFailure(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("tried: %w", &optimistic.StaleError{})
	if kind := failureKind(err); kind != "conflict" {
		t.Errorf("counted as %q", kind)
	}
	if kind := failureKind(errors.New("another")); kind != "" {
		t.Errorf("another is counted as %q", kind)
	}
}
