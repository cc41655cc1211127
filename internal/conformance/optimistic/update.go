package optimistic

import (
	"context"
	"database/sql"
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
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/optimistic"
)

// hasRow fails unless a row has a balance and a version. It waits for writers of the row.
func (b *env[DB]) hasRow(t *testing.T, id, balance, version int64) {
	t.Helper()
	assert.Equal(t, Account{id, balance, version}, b.row(t, id))
}

func (b *env[DB]) row(t *testing.T, id int64) (a Account) {
	t.Helper()
	query := "SELECT id, balance, version FROM account WHERE id = " + itoa(id) + " FOR UPDATE"
	require.NoError(t, b.QueryRowContext(t.Context(), query).Scan(&a.ID, &a.Balance, &a.Version))
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
func (b *env[DB]) intrude(t *testing.T, id int64) {
	t.Helper()
	_, err := b.ExecContext(context.WithoutCancel(t.Context()), "UPDATE account SET balance = balance + 1000, version = version + 1 WHERE id = "+itoa(id))
	assert.NoError(t, err)
}

// disturbed is an update of account 1 in whose midst, the first times, another session adds 1,000.
func (b *env[DB]) disturbed(t *testing.T, blind bool, times int, opts ...optimistic.Option) (got Account, attempts int, err error) {
	got, err = b.accounts.Update(t.Context(), Change{ID: 1, Blind: blind, Mutate: func(_ context.Context, a *Account) error {
		if attempts++; attempts <= times {
			b.intrude(t, 1)
		}
		a.Balance += 10
		return nil
	}}, opts...)
	return got, attempts, err
}

// Updates are those by the driver's Update and Do: there is no false success, and no end of
// repeating, whatever the session's settings are.
func (tests[DB]) Updates(t *testing.T, b *env[DB]) {
	b.fresh(t, "account", 2)
	suite.Crowd(8, func(caller int) {
		for n := range 10 {
			id := int64(1 + (caller+n)%2)
			assert.NoError(t, errOf(b.accounts.Update(t.Context(), Change{ID: id, Mutate: add(1)}, b.e.Escalate(3, id))))
		}
	})
	b.is(t, 80, "SELECT sum(balance) FROM account")
	b.is(t, 82, "SELECT sum(version) FROM account")
	t.Run("RepeatsOnWhatIsThere", func(t *testing.T) {
		before := b.row(t, 1)
		got, attempts, err := b.disturbed(t, false, 2)
		require.NoError(t, err)
		assert.Equal(t, 3, attempts)
		assert.Equal(t, Account{1, before.Balance + 2010, before.Version + 3}, got)
		assert.Equal(t, got, b.row(t, 1))
		_, attempts, err = b.disturbed(t, false, 9, optimistic.Attempts(3))
		conflict := suite.As[*optimistic.StaleError](t, err)
		assert.Equal(t, []any{3, 3, int64(1)}, []any{attempts, conflict.Attempts, conflict.Key})
		// A change that is none still has a new version, or a driver would report that no row has
		// changed.
		assert.NoError(t, errOf(b.accounts.Update(t.Context(), Change{ID: 2, Mutate: add(0)})), "a row that stays as it is")
	})
	t.Run("ControlOverwritesBlindly", func(t *testing.T) { // without the version the other write is lost, without an error
		before := b.row(t, 1)
		_, _, err := b.disturbed(t, true, 1)
		require.NoError(t, err)
		assert.Equal(t, before.Balance+10, b.row(t, 1).Balance)
	})
	t.Run("OneAttemptInACallersTx", func(t *testing.T) { oneAttemptInACallersTx(t, b) })
	t.Run("DoWritesAllOrNothing", func(t *testing.T) { doWritesAllOrNothing(t, b) })
}

// oneAttemptInACallersTx: two have read the row before either writes it, in transactions of their
// own. One of them can't have it, and dblock does not repeat what is the caller's.
func oneAttemptInACallersTx[DB any](t *testing.T, b *env[DB]) {
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		before, meet := b.row(t, 1), meeting()
		var attempts [2]int
		errs := two(func(n int) error {
			tx, err := b.pool.Begin(t.Context(), level)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			_, err = b.e.On(tx.DB).Update(t.Context(), Change{ID: 1, Mutate: func(_ context.Context, a *Account) error {
				attempts[n]++
				meet(n)
				a.Balance++
				return nil
			}}, optimistic.Attempts(5), b.e.Escalate(1, 1), optimistic.RetryIf(func(error) bool { return true }))
			if err != nil {
				return err
			}
			return tx.Commit()
		})
		assert.Equal(t, [2]int{1, 1}, attempts)
		require.NotEqual(t, errs[0] == nil, errs[1] == nil, "%v: %v", level, errs)
		lost := errors.Join(errs[:]...)
		var conflict *optimistic.StaleError
		assert.True(t, errors.As(lost, &conflict) && conflict.Attempts == 1 || errors.Is(lost, dblock.ErrConflict), "%v: %v", level, lost)
		assert.ErrorContains(t, lost, "the transaction is the caller's", level)
		b.hasRow(t, 1, before.Balance+1, before.Version+1)
	}
}

// move takes from account 1 and gives to account 2. disturb runs when it has read both.
func (b *env[DB]) move(t *testing.T, disturb func(attempt int), opts ...optimistic.Option) error {
	return b.pool.Do(t.Context(), func(db DB, attempt int) error {
		tx := b.e.On(db)
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

func doWritesAllOrNothing[DB any](t *testing.T, b *env[DB]) {
	one, other := b.row(t, 1), b.row(t, 2)
	var attempts []int
	require.NoError(t, b.move(t, func(attempt int) {
		if attempts = append(attempts, attempt); attempt == 1 {
			b.intrude(t, 2)
		}
	}))
	assert.Len(t, attempts, 2)
	b.hasRow(t, 1, one.Balance-10, one.Version+1)
	b.hasRow(t, 2, other.Balance+1010, other.Version+2)

	err := b.move(t, func(int) { b.intrude(t, 2) }, optimistic.Attempts(3))
	if b.Kind == devdb.MariaDB && strings.Contains(b.dsn, "innodb_snapshot_isolation") { // the server says it first
		assert.True(t, errors.Is(err, dblock.ErrConflict) || errors.Is(err, optimistic.ErrStale), "%v", err)
	} else {
		conflict := suite.As[*optimistic.StaleError](t, err)
		assert.Equal(t, []any{3, int64(2)}, []any{conflict.Attempts, conflict.Key})
	}
	b.hasRow(t, 1, one.Balance-10, one.Version+1)

	assert.NoError(t, b.move(t, func(int) {}, optimistic.Attempts(2), b.e.Escalate(1, 1)))
	b.hasRow(t, 1, one.Balance-20, one.Version+2)
}

// TakesNoMoreRoundTrips: as many as the two statements by hand.
func (tests[DB]) TakesNoMoreRoundTrips(t *testing.T, b *env[DB]) {
	var dialer faultconn.Dialer
	on := b.e.On(b.open(t, &dialer, 1).DB)
	trips := func(f func() error) int {
		require.NoError(t, f()) // statements are prepared by then
		dialer.Arm(0, 0, nil)
		require.NoError(t, f())
		return dialer.Writes()
	}
	byHand := trips(func() error {
		a, err := on.Load(t.Context(), 1)
		a.Balance++
		return errors.Join(err, errOf(on.Save(t.Context(), a, false)))
	})
	ours := trips(func() error { return errOf(on.Update(t.Context(), Change{ID: 1, Mutate: add(1)})) })
	assert.Equal(t, byHand, ours)
	assert.GreaterOrEqual(t, byHand, 2)
}

// besieged is an update in whose midst another session adds 1,000 whenever the row is not locked.
func (b *env[DB]) besieged(t *testing.T, opts ...optimistic.Option) (attempts int, err error) {
	_, err = b.accounts.Update(t.Context(), Change{ID: 1, Mutate: func(_ context.Context, a *Account) error {
		attempts++
		a.Balance++
		tx, err := b.BeginTx(t.Context(), nil)
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

func (tests[DB]) EscalatesAndGetsThrough(t *testing.T, b *env[DB]) {
	var told []int
	attempts, err := b.besieged(t, b.e.Escalate(3, 1), optimistic.OnConflict(func(_ error, attempt int) { told = append(told, attempt) }))
	require.NoError(t, err)
	assert.Equal(t, 4, attempts)
	assert.Len(t, told, 3)
	b.hasRow(t, 1, 3001, 5)
}

func (tests[DB]) ControlGivesUpWithoutTheLock(t *testing.T, b *env[DB]) {
	attempts, err := b.besieged(t)
	assert.ErrorIs(t, err, optimistic.ErrStale)
	assert.Equal(t, 10, attempts)
}

// NestedInOppositeOrders: two Updates that each hold the lock of their row, and update the other's
// row within, don't wait for each other for ever. Both are written.
func (tests[DB]) NestedInOppositeOrders(t *testing.T, b *env[DB]) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	meet := meeting()
	var inner [3]atomic.Int64 // nested updates that were written, by row
	errs := two(func(n int) error {
		id, other := int64(n+1), int64(2-n)
		attempts := 0
		return errOf(b.accounts.Update(ctx, Change{ID: id, Mutate: func(ctx context.Context, a *Account) error {
			if attempts++; attempts == 1 { // fails, so that the next attempt takes the row's lock
				b.intrude(t, id)
				return nil
			}
			meet(n)
			err := errOf(b.accounts.Update(ctx, Change{ID: other, Mutate: add(10)}, b.e.Escalate(1, other)))
			if err == nil {
				inner[other].Add(1)
			}
			a.Balance++
			return err
		}}, b.e.Escalate(1, id), optimistic.Attempts(30)))
	})
	require.NoError(t, errors.Join(errs[:]...))
	for id := range int64(2) {
		assert.Equal(t, 1000+1+10*inner[id+1].Load(), b.row(t, id+1).Balance)
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
