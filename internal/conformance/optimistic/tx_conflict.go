package optimistic

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
)

// meeting is where two wait for each other, once each.
type meeting struct {
	first, second sync.Once
	both          sync.WaitGroup
}

func newMeeting() *meeting {
	m := &meeting{}
	m.both.Add(2)
	return m
}

func (m *meeting) of(n int) {
	once := &m.first
	if n == 1 {
		once = &m.second
	}
	once.Do(func() { m.both.Done(); m.both.Wait() })
}

// two runs a function twice at once, and returns both errors.
func two(fn func(n int) error) (errs [2]error) {
	var wg sync.WaitGroup
	for n := range errs {
		wg.Go(func() { errs[n] = fn(n) })
	}
	wg.Wait()
	return errs
}

// cross has two lock the rows in opposite orders, once: the first time each has its first row before it asks for its second.
func (b *txBench) cross(o TxOptions, fn func(n int, tx Statements, err error) error) [2]error {
	add := map[int]string{1: add1, 2: add2}
	return b.crossBy(func(tx Statements, id int) error { return tx.Exec(add[id]) }, o, fn)
}

// crossBy is cross with another way to lock a row.
func (b *txBench) crossBy(
	lock func(tx Statements, id int) error, o TxOptions, fn func(n int, tx Statements, err error) error,
) [2]error {
	m := newMeeting()
	rows := [2][2]int{{1, 2}, {2, 1}}
	return two(func(n int) error {
		return b.run(b.Context(), o, func(tx Statements) error {
			if err := lock(tx, rows[n][0]); err != nil {
				return err
			}
			m.of(n)
			return fn(n, tx, lock(tx, rows[n][1]))
		})
	})
}

// runsAgainAfterLocksMet: a deadlock is one whoever says so, the server or what locks rows.
func runsAgainAfterLocksMet(b *txBench) {
	var runs atomic.Int64
	errs := b.crossBy(func(tx Statements, id int) error { return tx.Lock(id) }, TxOptions{}, func(_ int, tx Statements, err error) error {
		runs.Add(1)
		if err != nil {
			return err
		}
		return errors.Join(tx.Exec(add1), tx.Exec(add2))
	})
	if err := errors.Join(errs[:]...); err != nil || runs.Load() < 3 {
		b.Errorf("%d runs, %v", runs.Load(), err)
	}
	if got := b.value(sum); got != 6 {
		b.Errorf("the sum is %d, want 6", got)
	}
}

func runsAgainAfterADeadlock(b *txBench) {
	var mu sync.Mutex
	runs, retries := 0, 0
	errs := b.cross(TxOptions{OnRetry: func(attempt int, err error) {
		mu.Lock()
		defer mu.Unlock()
		retries++
	}}, func(_ int, _ Statements, err error) error {
		mu.Lock()
		defer mu.Unlock()
		runs++
		return err
	})
	if err := errors.Join(errs[:]...); err != nil || runs < 3 || retries != runs-2 {
		b.Errorf("%d runs, %d retries, %v", runs, retries, err)
	}
	if got := b.value(sum); got != 6 {
		b.Errorf("the sum is %d, want 6", got)
	}
}

func givesUpWithTheConflict(b *txBench) {
	for attempts, text := range map[int]string{1: "run once", 3: "run 3 times"} {
		runs := 0
		err := b.run(b.Context(), TxOptions{Attempts: attempts}, func(tx Statements) error {
			runs++
			b.must(tx.Exec(add1))
			return tx.Exec(b.conflict())
		})
		if !errors.Is(err, dblock.ErrConflict) || runs != attempts || !strings.Contains(err.Error(), text) {
			b.Errorf("%d runs of %d: %v", runs, attempts, err)
		}
	}
	b.want(1)
}

// skew has two give up one row each, if the rows' sum says that the other stays: what each decides by, the other changes.
func (b *txBench) skew(isolation sql.IsolationLevel) (left int) {
	m := newMeeting()
	giveUp := [2]string{"UPDATE t SET v = 0 WHERE id = 1", "UPDATE t SET v = 0 WHERE id = 2"}
	errs := two(func(n int) error {
		return b.run(b.Context(), TxOptions{Isolation: isolation}, func(tx Statements) error {
			left, err := tx.Int(sum)
			if err != nil {
				return err
			}
			m.of(n)
			if left < 2 {
				return nil
			}
			return tx.Exec(giveUp[n])
		})
	})
	b.must(errors.Join(errs[:]...))
	return b.value(sum)
}

func keepsInvariants(b *txBench) {
	if left := b.skew(sql.LevelSerializable); left != 1 {
		b.Errorf("%d are left, want 1", left)
	}
}

func controlBreaksInvariants(b *txBench) {
	if left := b.skew(sql.LevelReadCommitted); left != 0 {
		b.Errorf("%d are left: the test would pass without SERIALIZABLE", left)
	}
}

// losesNoUpdates: a crowd reads, and writes what it has read and one more.
func losesNoUpdates(b *txBench) {
	const callers, each = 4, 5
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range each {
				err := b.run(b.Context(), TxOptions{Isolation: sql.LevelSerializable, Attempts: 1000}, func(tx Statements) error {
					v, err := tx.Int(get1)
					if err != nil {
						return err
					}
					return tx.Exec(fmt.Sprintf("UPDATE t SET v = %d WHERE id = 1", v+1))
				})
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	b.want(1 + callers*each)
}

// swallowed is what two do who cross and take no notice of errors.
func (b *txBench) swallowed(last func(n int, tx Statements) error) (failed []error) {
	b.outside("INSERT INTO t VALUES (3, 0), (4, 0)")
	errs := b.cross(TxOptions{}, func(n int, tx Statements, err error) error {
		if err != nil {
			return last(n, tx)
		}
		return nil
	})
	for _, err := range errs {
		if err != nil {
			failed = append(failed, err)
		}
	}
	return failed
}

// aSwallowedConflict: it is an error, never a success. On MySQL the server writes what comes after.
func aSwallowedConflict(b *txBench) {
	failed := b.swallowed(func(_ int, tx Statements) error {
		_ = tx.Exec("UPDATE t SET v = 7 WHERE id = 3")
		return nil
	})
	if len(failed) != 1 || !errors.Is(failed[0], dblock.ErrTxEnded) || errors.Is(failed[0], dblock.ErrConflict) {
		b.Errorf("got %v, want one ErrTxEnded", failed)
	}
	if got := b.value(sum); got != 4+b.after(7) {
		b.Errorf("the sum is %d", got)
	}
}

// after is what is there of a value that was written after the transaction had gone.
func (b *txBench) after(v int) int {
	if b.e.Kind == devdb.Postgres {
		return 0
	}
	return v
}

// controlSwallows: the plain way of database/sql reports success on MySQL, where half of it is written.
func controlSwallows(b *txBench) {
	if b.e.Kind == devdb.Postgres {
		return // its drivers see it by the answer to COMMIT
	}
	m := newMeeting()
	rows := [2][2]string{{add1, add2}, {add2, add1}}
	errs := two(func(n int) error {
		tx, err := b.db.BeginTx(b.Context(), nil)
		if err != nil {
			return err
		}
		_, _ = tx.ExecContext(b.Context(), rows[n][0])
		m.of(n)
		_, _ = tx.ExecContext(b.Context(), rows[n][1])
		return tx.Commit()
	})
	if err := errors.Join(errs[:]...); err != nil {
		b.Errorf("the test would pass without a check: %v", err)
	}
	if got := b.value(sum); got != 4 {
		b.Errorf("the sum is %d: nothing was lost, and the test would pass without a check", got)
	}
}
