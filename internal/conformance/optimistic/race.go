package optimistic

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/optimistic"
)

const workers = 64

// crowdEach is how many Updates each worker makes.
func crowdEach() int {
	if os.Getenv(suite.EnvSoak) != "" {
		return 200
	}
	return 20
}

// increments makes accounts, and has workers call once so often. Each call adds one to the balance
// and to the version of so many accounts. Do repeats it.
func (b *env[DB]) increments(t *testing.T, accounts, times, each int, once func(n int) error) {
	t.Helper()
	b.fresh(t, "account", accounts)
	b.SetMaxOpenConns(16)
	b.SetMaxIdleConns(16)
	suite.Crowd(workers, func(worker int) {
		for i := range times {
			n := worker*7919 + i*104729
			err := optimistic.Do(t.Context(), func(context.Context, int) error { return once(n) }, optimistic.Attempts(1_000))
			if !assert.NoError(t, err) {
				return
			}
		}
	})
	b.is(t, int64(workers*times*each), "SELECT sum(balance) FROM account")
	b.is(t, int64(workers*times*each), "SELECT sum(version - 1) FROM account")
}

// addsOne reads a row, and returns the change that adds one.
func (b *env[DB]) addsOne(t *testing.T, key int64) (c change, balance int64, err error) {
	err = b.QueryRowContext(t.Context(), "SELECT version, balance FROM account WHERE id = "+itoa(key)).Scan(&c.Expected, &balance)
	c.Key, c.Set = key, set{"balance": balance + 1}
	return c, balance, err
}

func (tests[DB]) IncrementsRows(t *testing.T, b *env[DB]) {
	table := b.ints(t, "account")
	for _, accounts := range []int{1, 1000} {
		b.increments(t, accounts, crowdEach(), 1, func(n int) error {
			c, _, err := b.addsOne(t, int64(n%accounts+1))
			if err == nil {
				_, err = table.Update(t.Context(), b.db, c.Key, c.Expected, c.Set)
			}
			return err
		})
	}
}

// IncrementsMany: each call adds one to three rows, in one order or another: to all of them or to
// none. The server reports no deadlock.
func (tests[DB]) IncrementsMany(t *testing.T, b *env[DB]) {
	table := b.ints(t, "account")
	b.increments(t, 10, 6, 3, func(n int) (err error) {
		changes := make([]change, 3)
		for j := range changes {
			if changes[j], _, err = b.addsOne(t, int64((n+j*(1+n%3*3))%10+1)); err != nil {
				return err
			}
		}
		_, err = table.UpdateMany(t.Context(), b.db, changes, optimistic.UpdateAllOrNothing)
		if errors.Is(err, dblock.ErrConflict) {
			return fmt.Errorf("not to be repeated: %v", err)
		}
		return err
	})
}

// IncrementsByColumns: by the balance itself.
func (tests[DB]) IncrementsByColumns(t *testing.T, b *env[DB]) {
	table := b.columns(t, "account", "balance")
	b.increments(t, 1, 10, 1, func(int) error {
		c, balance, err := b.addsOne(t, 1)
		if err == nil {
			_, err = table.Update(t.Context(), b.db, 1, values{"balance": balance}, set{"balance": balance + 1, "version": c.Expected + 1})
		}
		return err
	})
}

// CountsOnRows: by the driver's Update, with the option that lets each caller through.
func (tests[DB]) CountsOnRows(t *testing.T, b *env[DB]) {
	for _, accounts := range []int{1, 1000} {
		b.increments(t, accounts, crowdEach(), 1, func(n int) error {
			id := int64(n%accounts + 1)
			return errOf(b.accounts.Update(t.Context(), Change{ID: id, Mutate: add(1)}, b.e.Escalate(3, id)))
		})
	}
}

// ControlIncrementsAreLost: with the version out of the condition, which Any does, two that read
// the same lose one increment.
func (tests[DB]) ControlIncrementsAreLost(t *testing.T, b *env[DB]) {
	one, _, err := b.addsOne(t, 1)
	require.NoError(t, err)
	for range 2 {
		must(b.ints(t, "account").Any().Update(t.Context(), b.db, 1, one.Set))(t)
	}
	b.is(t, 1, "SELECT balance FROM account WHERE id = 1")
}

// UpsertRace: of many that insert a row one does, and the others meet a conflict.
func (tests[DB]) UpsertRace(t *testing.T, b *env[DB]) {
	table := b.ints(t, "account")
	require.NoError(t, table.Check(t.Context(), b.db))
	for key := 100; key < 120; key++ {
		var won atomic.Int64
		suite.Crowd(8, func(int) {
			if _, err := table.Upsert(t.Context(), b.db, key, optimistic.Absent[int64](), set{"balance": 1}); err != nil {
				assert.ErrorIs(t, err, optimistic.ErrStale)
				return
			}
			won.Add(1)
		})
		assert.EqualValues(t, 1, won.Load(), "inserts of %d", key)
	}
}

// BlindWritesOfOneRow: each of many writes that take any version returns a version of its own, with
// triggers.
func (tests[DB]) BlindWritesOfOneRow(t *testing.T, b *env[DB]) {
	const callers, each = 8, 15
	b.audited(t, "1")
	table := b.ints(t, "account")
	require.NoError(t, table.Check(t.Context(), b.db))
	var told sync.Map
	suite.Crowd(callers, func(int) {
		for range each {
			v, err := table.Any().Update(t.Context(), b.db, 1, set{"balance": 1})
			assert.NoError(t, err)
			_, twice := told.Swap(v, true)
			assert.False(t, twice, "version %d was told twice", v)
		}
	})
	assert.EqualValues(t, 1+callers*each, must(table.Version(t.Context(), b.db, 1))(t))
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

// attempt reads the version of a row, calls meet, and writes the row. read is when it had read.
type attempt func(key int64, blind bool, meet func()) (was, now int64, read time.Time, err error)

// IsACASRegister: what callers see of one row could have come from one after another; and with the
// version out of the condition it could not.
func (tests[DB]) IsACASRegister(t *testing.T, b *env[DB]) {
	ctx, table := t.Context(), b.ints(t, "account")
	attempts := []attempt{
		func(key int64, blind bool, meet func()) (was, now int64, read time.Time, err error) {
			was = must(table.Version(ctx, b.db, key))(t)
			read = time.Now()
			if meet(); blind {
				now, err = table.Any().Update(ctx, b.db, key, set{"note": "x"})
			} else {
				now, err = table.Update(ctx, b.db, key, was, set{"note": "x"})
			}
			return was, now, read, err
		},
		func(key int64, blind bool, meet func()) (was, now int64, read time.Time, err error) {
			got, err := b.accounts.Update(ctx, Change{ID: key, Blind: blind, Mutate: func(_ context.Context, a *Account) error {
				was, read = a.Version, time.Now()
				meet()
				a.Balance++
				return nil
			}}, optimistic.Attempts(1))
			return was, got.Version, read, err
		},
	}
	for i, a := range attempts {
		honest, blind := versionHistory(t, a, int64(2*i+1), false), versionHistory(t, a, int64(2*i+2), true)
		assert.Equal(t, porcupine.Ok, porcupine.CheckOperationsTimeout(versionRegister, honest, time.Minute))
		assert.Equal(t, porcupine.Illegal, porcupine.CheckOperationsTimeout(versionRegister, blind, time.Minute), "the control")
	}
}

// versionHistory has callers read a row, all at once, and write it.
func versionHistory(t *testing.T, once attempt, key int64, blind bool) (steps []porcupine.Operation) {
	var mu sync.Mutex
	note := func(client int, from, to time.Time, s versionStep) {
		mu.Lock()
		defer mu.Unlock()
		steps = append(steps, porcupine.Operation{ClientId: client, Input: s, Call: from.UnixNano(), Return: to.UnixNano()})
	}
	for range 30 {
		var read sync.WaitGroup
		read.Add(4)
		suite.Crowd(4, func(client int) {
			from := time.Now()
			was, now, at, err := once(key, blind, func() { read.Done(); read.Wait() }) // so that all of them expect the same
			note(client, from, at, versionStep{was: was, now: was})
			note(client, at, time.Now(), versionStep{write: true, conflict: err != nil, was: was, now: now})
			assert.True(t, err == nil || errors.Is(err, optimistic.ErrStale), "%v", err)
		})
	}
	return steps
}
