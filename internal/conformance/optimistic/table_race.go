package optimistic

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/optimistic"
)

const workers = 64

// increments has workers add one to balances, each so often. once reads a row and writes it; Do
// repeats it.
func (b *tables[DB]) increments(t *testing.T, times int, once func(worker, i int) error) {
	t.Helper()
	b.SetMaxOpenConns(16)
	b.SetMaxIdleConns(16)
	suite.Crowd(workers, func(worker int) {
		for i := range times {
			err := optimistic.Do(t.Context(), func(context.Context, int) error { return once(worker, i) }, optimistic.Attempts(1_000))
			if !assert.NoError(t, err) {
				return
			}
		}
	})
}

// addsOne reads a row, and returns the change that adds one.
func (b *tables[DB]) addsOne(t *testing.T, key int64) (c change, balance int64, err error) {
	err = b.QueryRowContext(t.Context(), "SELECT version, balance FROM account WHERE id = "+itoa(key)).Scan(&c.Expected, &balance)
	c.Key, c.Set = key, set{"balance": balance + 1}
	return c, balance, err
}

// incrementsRows has each of the rows 1 to n incremented.
func incrementsRows[DB any](t *testing.T, b *tables[DB], n int) {
	b.fresh(t, "account", n)
	table := b.ints(t, "account")
	b.increments(t, crowdEach(), func(worker, i int) error {
		c, _, err := b.addsOne(t, int64((worker*7919+i*104729)%n+1))
		if err == nil {
			_, err = table.Update(t.Context(), b.db, c.Key, c.Expected, c.Set)
		}
		return err
	})
	b.is(t, int64(workers*crowdEach()), "SELECT sum(balance) FROM account")
	b.is(t, int64(workers*crowdEach()+n), "SELECT sum(version) FROM account")
}

// incrementsMany: each call adds one to three rows, to all of them or to none.
func incrementsMany[DB any](t *testing.T, b *tables[DB]) {
	const times = 4
	table := b.ints(t, "account")
	b.increments(t, times, func(worker, i int) error {
		changes := make([]change, 3)
		for j := range changes {
			var err error
			if changes[j], _, err = b.addsOne(t, int64((worker+i+j*(1+worker%3))%10+1)); err != nil {
				return err
			}
		}
		return errOf(table.UpdateMany(t.Context(), b.db, changes, optimistic.AllOrNothing))
	})
	b.is(t, workers*times*3, "SELECT sum(balance) FROM account")
	b.is(t, workers*times*3+10, "SELECT sum(version) FROM account")
}

// incrementsByColumns: without a version, by the balance itself.
func incrementsByColumns[DB any](t *testing.T, b *tables[DB]) {
	const times = 10
	table := b.columns(t, "account", "balance")
	b.increments(t, times, func(int, int) error {
		c, balance, err := b.addsOne(t, 1)
		if err == nil {
			_, err = table.Update(t.Context(), b.db, 1, values{"balance": balance}, c.Set)
		}
		return err
	})
	b.is(t, workers*times, "SELECT balance FROM account WHERE id = 1")
}

// controlIncrementsAreLost: with the version out of the condition, which Any does, two that read
// the same lose one increment.
func controlIncrementsAreLost[DB any](t *testing.T, b *tables[DB]) {
	one, _, err := b.addsOne(t, 1)
	require.NoError(t, err)
	for range 2 {
		must(b.ints(t, "account").Any().Update(t.Context(), b.db, 1, one.Set))(t)
	}
	b.is(t, 1, "SELECT balance FROM account WHERE id = 1")
}

// upsertRace: of many that insert a row one does, and the others meet a conflict.
func upsertRace[DB any](t *testing.T, b *tables[DB]) {
	table := b.ints(t, "account")
	require.NoError(t, table.Check(t.Context(), b.db))
	for key := 100; key < 120; key++ {
		var won atomic.Int64
		suite.Crowd(8, func(int) {
			if _, err := table.Upsert(t.Context(), b.db, key, optimistic.Absent[int64](), set{"balance": 1}); err != nil {
				assert.ErrorIs(t, err, optimistic.ErrConflict)
				return
			}
			won.Add(1)
		})
		assert.EqualValues(t, 1, won.Load(), "inserts of %d", key)
	}
}

// versionStep is a read of a row's version, or a write of one that was at was. After a conflict it
// was at another.
type versionStep struct {
	write, conflict bool
	was, now        int64 // of a read, both are what it saw
}

// versionRegister is the model of a row: a write succeeds if, and only if, the row is at the
// version expected.
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

// tableIsACASRegister: what callers see of one row could have come from one after another; and with
// the version out of the condition it could not.
func tableIsACASRegister[DB any](t *testing.T, b *tables[DB]) {
	ctx, table := t.Context(), b.ints(t, "account")
	honest := b.versionHistory(t, table, 1, func(v int64) (int64, error) { return table.Update(ctx, b.db, 1, v, set{"note": "x"}) })
	assert.Equal(t, porcupine.Ok, porcupine.CheckOperationsTimeout(versionRegister, honest, time.Minute))
	blind := b.versionHistory(t, table, 2, func(int64) (int64, error) { return table.Any().Update(ctx, b.db, 2, set{"note": "x"}) })
	assert.Equal(t, porcupine.Illegal, porcupine.CheckOperationsTimeout(versionRegister, blind, time.Minute), "the control")
}

// versionHistory has callers read a row, all at once, and write it.
func (b *tables[DB]) versionHistory(
	t *testing.T, table *optimistic.Table[int64, DB], key int, write func(expected int64) (int64, error),
) (steps []porcupine.Operation) {
	require.NoError(t, table.Check(t.Context(), b.db))
	begun := time.Now()
	var mu sync.Mutex
	note := func(client int, from time.Duration, s versionStep) {
		mu.Lock()
		defer mu.Unlock()
		steps = append(steps, porcupine.Operation{ClientId: client, Input: s, Call: int64(from), Return: int64(time.Since(begun))})
	}
	for range 30 {
		var read sync.WaitGroup
		read.Add(4)
		suite.Crowd(4, func(client int) {
			from := time.Since(begun)
			v, err := table.Version(t.Context(), b.db, key)
			assert.NoError(t, err)
			note(client, from, versionStep{was: v, now: v})
			read.Done()
			read.Wait() // so that all of them expect the same
			from = time.Since(begun)
			now, err := write(v)
			note(client, from, versionStep{write: true, conflict: err != nil, was: v, now: now})
			assert.True(t, err == nil || errors.Is(err, optimistic.ErrConflict), "%v", err)
		})
	}
	return steps
}
