package optimistic

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/optimistic"
)

// besieged is an update in whose midst another session adds 1,000 whenever the row is not locked.
func (l *updates) besieged(t *testing.T, opts ...optimistic.Option) (attempts int, err error) {
	_, err = l.pool.Update(t.Context(), Change{ID: 1, Mutate: func(_ context.Context, a *Account) error {
		attempts++
		a.Balance++
		tx, err := l.BeginTx(t.Context(), nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.ExecContext(t.Context(), "SELECT id FROM account WHERE id = 1 FOR UPDATE NOWAIT"); err != nil {
			return nil
		}
		_, err = tx.ExecContext(t.Context(), "UPDATE account SET balance = balance + 1000, version = version + 1 WHERE id = 1")
		return errors.Join(err, tx.Commit())
	}}, opts...)
	return attempts, err
}

func escalatesAndGetsThrough(t *testing.T, l *updates) {
	var told []int
	attempts, err := l.besieged(t, l.pool.Escalate(3, 1), optimistic.OnConflict(func(_ error, attempt int) { told = append(told, attempt) }))
	require.NoError(t, err)
	assert.Equal(t, 4, attempts)
	assert.Len(t, told, 3)
	l.is(t, 1, 3101, 5)
}

func controlGivesUpWithoutTheLock(t *testing.T, l *updates) {
	attempts, err := l.besieged(t)
	assert.ErrorIs(t, err, optimistic.ErrConflict)
	assert.Equal(t, 10, attempts)
}

// move takes from account 1 and gives to account 2. disturb runs when it has read both.
func (l *updates) move(t *testing.T, disturb func(attempt int), opts ...optimistic.Option) error {
	return l.pool.Do(t.Context(), func(tx Accounts, attempt int) error {
		from, err := tx.Load(t.Context(), 1)
		to, err2 := tx.Load(t.Context(), 2)
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		disturb(attempt)
		from.Balance, to.Balance = from.Balance-10, to.Balance+10
		if _, err := tx.Save(t.Context(), from, false); err != nil {
			return err
		}
		return errOf(tx.Save(t.Context(), to, false))
	}, opts...)
}

func doWritesAllOrNothing(t *testing.T, l *updates) {
	one, other := l.row(t, 1), l.row(t, 2)
	var attempts []int
	require.NoError(t, l.move(t, func(attempt int) {
		if attempts = append(attempts, attempt); attempt == 1 {
			l.intrude(t, 2)
		}
	}))
	assert.Len(t, attempts, 2)
	l.is(t, 1, one.Balance-10, one.Version+1)
	l.is(t, 2, other.Balance+1010, other.Version+2)

	err := l.move(t, func(int) { l.intrude(t, 2) }, optimistic.Attempts(3))
	if l.Kind == devdb.MariaDB && strings.Contains(l.dsn, "innodb_snapshot_isolation") { // the server says it first
		assert.True(t, errors.Is(err, dblock.ErrConflict) || errors.Is(err, optimistic.ErrConflict), "%v", err)
	} else {
		conflict := suite.As[*optimistic.ConflictError](t, err)
		assert.Equal(t, []any{3, int64(2)}, []any{conflict.Attempts, conflict.Key})
	}
	l.is(t, 1, one.Balance-10, one.Version+1)

	assert.NoError(t, l.move(t, func(int) {}, optimistic.Attempts(2), l.pool.Escalate(1, 1)))
	l.is(t, 1, one.Balance-20, one.Version+2)
}

func doRollsBackAPanic(t *testing.T, l *updates) {
	assert.PanicsWithValue(t, "fn's own", func() {
		_ = l.pool.Do(t.Context(), func(tx Accounts, _ int) error {
			require.NoError(t, errOf(tx.Update(t.Context(), Change{ID: 1, Mutate: add(1)})))
			panic("fn's own")
		})
	})
	l.is(t, 1, 100, 1)
}

// nestedInOppositeOrders: two updates that each hold the lock of their row, and update the other's
// row within, don't wait for each other for ever. Both are written.
func nestedInOppositeOrders(t *testing.T, l *updates) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	meet := meeting()
	var inner [3]atomic.Int64 // nested updates that were written, by row
	errs := two(func(n int) error {
		id, other := int64(n+1), int64(2-n)
		attempts := 0
		return errOf(l.pool.Update(ctx, Change{ID: id, Mutate: func(ctx context.Context, a *Account) error {
			if attempts++; attempts == 1 { // fails, so that the next attempt takes the row's lock
				l.intrude(t, id)
				return nil
			}
			meet(n)
			err := errOf(l.pool.Update(ctx, Change{ID: other, Mutate: add(10)}, l.pool.Escalate(1, other)))
			if err == nil {
				inner[other].Add(1)
			}
			a.Balance++
			return err
		}}, l.pool.Escalate(1, id), optimistic.Attempts(30)))
	})
	require.NoError(t, errors.Join(errs[:]...))
	for id := range int64(2) {
		assert.Equal(t, 100+1000+1+10*inner[id+1].Load(), l.row(t, id+1).Balance)
	}
}

// meeting returns a function in which the callers 0 and 1 wait for each other, once each.
func meeting() (meet func(n int)) {
	var once [2]sync.Once
	var both sync.WaitGroup
	both.Add(2)
	return func(n int) { once[n].Do(func() { both.Done(); both.Wait() }) }
}

// two runs a function twice at once, and returns both errors.
func two(fn func(n int) error) (errs [2]error) {
	suite.Crowd(2, func(n int) { errs[n] = fn(n) })
	return errs
}
