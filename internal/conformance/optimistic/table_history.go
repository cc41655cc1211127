package optimistic

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/anishathalye/porcupine"

	"github.com/dblock-go/dblock/optimistic"
)

// versionStep is a read of a row's version, or a write of one that was at was. After a conflict it was at another.
type versionStep struct {
	write, conflict bool
	was, now        int64 // of a read, both are what it saw
}

// versionRegister is the model of a row: a write succeeds if, and only if, the row is at the version expected.
var versionRegister = porcupine.Model{
	Init: func() any { return int64(1) },
	Step: func(state, input, _ any) (bool, any) {
		at, s := state.(int64), input.(versionStep)
		switch {
		case s.conflict:
			return at != s.was, at
		case s.write:
			return at == s.was && s.now > at, s.now
		default:
			return at == s.was, at
		}
	},
}

// tableIsACASRegister: what many callers see of one row could have come from one after another; and with the version out of the
// condition it could not.
func tableIsACASRegister[DB any](t *testing.T, b *bank[DB]) {
	table := b.ints(t, "account")
	honest := b.versionHistory(t, table, 1, func(expected int64) (int64, error) {
		return table.Update(t.Context(), b.db, 1, expected, optimistic.Set{"note": "x"})
	})
	if porcupine.CheckOperationsTimeout(versionRegister, honest, time.Minute) != porcupine.Ok {
		t.Error("the history is none of a register")
	}
	blind := b.versionHistory(t, table, 2, func(int64) (int64, error) {
		return table.Any().Update(t.Context(), b.db, 2, optimistic.Set{"note": "x"})
	})
	if porcupine.CheckOperationsTimeout(versionRegister, blind, time.Minute) != porcupine.Illegal {
		t.Error("blind writes pass for those of a register")
	}
}

// versionHistory has callers read a row, all at once, and write it.
func (b *bank[DB]) versionHistory(
	t *testing.T, table *optimistic.Table[int64, DB], key int, write func(expected int64) (int64, error),
) (steps []porcupine.Operation) {
	require.NoError(t, table.Check(t.Context(), b.db), "check")
	begun := time.Now()
	var mu sync.Mutex
	note := func(client int, from time.Duration, s versionStep) {
		mu.Lock()
		defer mu.Unlock()
		steps = append(steps, porcupine.Operation{ClientId: client, Input: s, Call: int64(from), Return: int64(time.Since(begun))})
	}
	for range 30 {
		var read, wrote sync.WaitGroup
		read.Add(4)
		for client := range 4 {
			wrote.Go(func() {
				from := time.Since(begun)
				v, err := table.Version(t.Context(), b.db, key)
				if err != nil {
					t.Error(err)
				}
				note(client, from, versionStep{was: v, now: v})
				read.Done()
				read.Wait() // so that all of them expect the same
				from = time.Since(begun)
				now, err := write(v)
				switch {
				case err == nil:
					note(client, from, versionStep{write: true, was: v, now: now})
				case errors.Is(err, optimistic.ErrConflict):
					note(client, from, versionStep{write: true, conflict: true, was: v})
				default:
					t.Error(err)
				}
			})
		}
		wrote.Wait()
	}
	return steps
}
