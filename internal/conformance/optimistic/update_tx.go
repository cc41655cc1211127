package optimistic

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/optimistic"
)

// oneAttemptInACallersTx: two have read the row before either writes it, in transactions of their own. One of them can't
// have it, and to repeat that is not ours.
func oneAttemptInACallersTx(l *ledger) {
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		before, m := l.row(1), newMeeting()
		var attempts [2]int
		errs := two(func(n int) error {
			return l.pool.InTx(l.Context(), level, func(tx Accounts) error {
				_, err := tx.Update(l.Context(), Change{ID: 1, Mutate: func(_ context.Context, a *Account) error {
					attempts[n]++
					m.of(n)
					a.Balance++
					return nil
				}}, optimistic.Attempts(5), l.pool.Escalate(1, 1), optimistic.RetryIf(func(error) bool { return true }))
				return err
			})
		})
		if attempts != [2]int{1, 1} {
			l.Errorf("%v: %v attempts", level, attempts)
		}
		lost := errs[0]
		if lost == nil {
			lost = errs[1]
		}
		var conflict *optimistic.ConflictError
		switch {
		case (errs[0] == nil) == (errs[1] == nil):
			l.Errorf("%v: they were told %v", level, errs)
		case errors.As(lost, &conflict) && conflict.Attempts == 1, errors.Is(lost, dblock.ErrConflict):
		default:
			l.Errorf("%v: %v", level, lost)
		}
		if lost != nil && !strings.Contains(lost.Error(), "the transaction is the caller's") {
			l.Errorf("%v: it says %v", level, lost)
		}
		l.want(1, before.Balance+1, before.Version+1)
	}
}

// besieged is an update in whose midst somebody adds 1,000 whenever the row is not locked.
func (l *ledger) besieged(opts ...optimistic.Option) (attempts int, err error) {
	_, err = l.pool.Update(l.Context(), Change{ID: 1, Mutate: func(_ context.Context, a *Account) error {
		attempts++
		a.Balance++
		return l.intrudeUnlessLocked()
	}}, opts...)
	return attempts, err
}

func (l *ledger) intrudeUnlessLocked() error {
	tx, err := l.db.BeginTx(l.Context(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(l.Context(), "SELECT id FROM account WHERE id = 1 FOR UPDATE NOWAIT"); err != nil {
		return nil
	}
	if _, err := tx.ExecContext(l.Context(), "UPDATE account SET balance = balance + 1000, version = version + 1 WHERE id = 1"); err != nil {
		return err
	}
	return tx.Commit()
}

func escalatesAndGetsThrough(l *ledger) {
	var told []int
	attempts, err := l.besieged(l.pool.Escalate(3, 1), optimistic.OnConflict(func(_ error, attempt int) { told = append(told, attempt) }))
	if err != nil || attempts != 4 || len(told) != 3 {
		l.Errorf("%d attempts, told of %v, %v", attempts, told, err)
	}
	l.want(1, 3101, 5)
}

func controlGivesUpWithoutTheLock(l *ledger) {
	attempts, err := l.besieged()
	if !errors.Is(err, optimistic.ErrConflict) || attempts != 10 {
		l.Errorf("%d attempts, %v: the test would pass without the lock", attempts, err)
	}
}

// move takes from one account and gives to the other. In its midst, the first time, somebody adds 1,000 to the second.
func (l *ledger) move(disturb func(attempt int), opts ...optimistic.Option) error {
	return l.pool.Do(l.Context(), func(tx Accounts, attempt int) error {
		from, err := tx.Load(l.Context(), 1)
		if err != nil {
			return err
		}
		to, err := tx.Load(l.Context(), 2)
		if err != nil {
			return err
		}
		disturb(attempt)
		from.Balance, to.Balance = from.Balance-10, to.Balance+10
		if _, err := tx.Save(l.Context(), from, false); err != nil {
			return err
		}
		_, err = tx.Save(l.Context(), to, false)
		return err
	}, opts...)
}

func doWritesAllOrNothing(l *ledger) {
	one, other := l.row(1), l.row(2)
	var attempts []int
	err := l.move(func(attempt int) {
		if attempts = append(attempts, attempt); attempt == 1 {
			l.intrude(2, 1000)
		}
	})
	if err != nil || len(attempts) != 2 {
		l.Errorf("attempts %v, %v", attempts, err)
	}
	l.want(1, one.Balance-10, one.Version+1)
	l.want(2, other.Balance+1010, other.Version+2)

	err = l.move(func(int) { l.intrude(2, 1000) }, optimistic.Attempts(3))
	var conflict *optimistic.ConflictError
	if l.snapshots() { // the server says it first
		if !errors.Is(err, dblock.ErrConflict) && !errors.Is(err, optimistic.ErrConflict) {
			l.Errorf("got %v", err)
		}
	} else if !errors.As(err, &conflict) || conflict.Attempts != 3 || conflict.Key != int64(2) {
		l.Errorf("got %v", err)
	}
	l.want(1, one.Balance-10, one.Version+1)

	if err := l.move(func(int) {}, optimistic.Attempts(2), l.pool.Escalate(1, 1)); err != nil {
		l.Error(err)
	}
	l.want(1, one.Balance-20, one.Version+2)
}

// snapshots tells of a session in which the server refuses to write what has changed.
func (l *ledger) snapshots() bool {
	return l.e.Kind == devdb.MariaDB && strings.Contains(l.dsn, "innodb_snapshot_isolation")
}

func doRollsBackAPanic(l *ledger) {
	func() {
		defer func() {
			if got := recover(); fmt.Sprint(got) != "fn's own" {
				l.Errorf("the panic came out as %v", got)
			}
		}()
		_ = l.pool.Do(l.Context(), func(tx Accounts, _ int) error {
			_, err := tx.Update(l.Context(), Change{ID: 1, Mutate: add(1)})
			l.must(err)
			panic("fn's own")
		})
	}()
	l.want(1, 100, 1)
}
