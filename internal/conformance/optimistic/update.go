package optimistic

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/optimistic"
)

// disturbed is an update of account 1 in whose midst, the first times, somebody else adds 1,000.
func (l *ledger) disturbed(blind bool, times int, opts ...optimistic.Option) (got Account, attempts int, err error) {
	got, err = l.pool.Update(l.Context(), Change{ID: 1, Blind: blind, Mutate: func(_ context.Context, a *Account) error {
		if attempts++; attempts <= times {
			l.intrude(1, 1000)
		}
		a.Balance += 10
		return nil
	}}, opts...)
	return got, attempts, err
}

func repeatsOnWhatIsThere(l *ledger) {
	got, attempts, err := l.disturbed(false, 2)
	if want := (Account{1, 2110, 4}); err != nil || got != want || attempts != 3 {
		l.Errorf("%d attempts, %+v, %v: want %+v", attempts, got, err, want)
	}
	l.want(1, 2110, 4)
	_, attempts, err = l.disturbed(false, 9, optimistic.Attempts(3))
	var conflict *optimistic.ConflictError
	if !errors.As(err, &conflict) || conflict.Attempts != 3 || conflict.Key != int64(1) || attempts != 3 {
		l.Errorf("%d attempts, %v", attempts, err)
	}
	l.want(1, 5110, 7)
}

// controlOverwritesBlindly: without the version what somebody else has written is gone, and nobody is told.
func controlOverwritesBlindly(l *ledger) {
	if _, _, err := l.disturbed(true, 1); err != nil {
		l.Errorf("without the version: %v", err)
	}
	if got := l.row(1); got.Balance != 110 {
		l.Errorf("%+v: the test would pass without the version", got)
	}
}

func tellsStaleFromGone(l *ledger) {
	_, _, err := l.disturbed(false, 1, optimistic.Attempts(1))
	look := func() (int64, error) {
		a, err := l.pool.Load(l.Context(), 1)
		return a.Version, err
	}
	var conflict *optimistic.ConflictError
	if err := optimistic.Diagnose(err, look); !errors.As(err, &conflict) || conflict.Expected != int64(1) || conflict.Actual != int64(2) {
		l.Errorf("a row that has changed: %v", err)
	}
	_, err = l.pool.Update(l.Context(), Change{ID: 1, Mutate: func(context.Context, *Account) error {
		l.outside("DELETE FROM account WHERE id = 1")
		return nil
	}}, optimistic.Attempts(1))
	if err := optimistic.Diagnose(err, look); !errors.Is(err, optimistic.ErrNotFound) || errors.Is(err, optimistic.ErrConflict) {
		l.Errorf("a row that is gone: %v", err)
	}
}

// updatesFromZero: the caller's own queries may have versions that begin at 0.
func updatesFromZero(l *ledger) {
	l.outside("UPDATE account SET version = 0 WHERE id = 1")
	got, attempts, err := l.disturbed(false, 1)
	if want := (Account{1, 1110, 2}); err != nil || got != want || attempts != 2 {
		l.Errorf("%d attempts, %+v, %v: want %+v", attempts, got, err, want)
	}
	l.outside("UPDATE account SET version = 0 WHERE id = 1")
	_, _, err = l.disturbed(false, 1, optimistic.Attempts(1))
	var conflict *optimistic.ConflictError
	if !errors.As(err, &conflict) || conflict.Expected != int64(0) {
		l.Errorf("a row that has changed since it was at 0: %v", err)
	}
}

// crowd has workers add 1 to rows, as the n-th call says, with options that nobody is given up on.
func (l *ledger) crowd(workers, each int, rowOf func(n int64) int64) (calls int64) {
	var n atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range each {
				id := rowOf(n.Add(1))
				if _, err := l.pool.Update(l.Context(), Change{ID: id, Mutate: add(1)}, l.pool.Escalate(3, id)); err != nil {
					l.Errorf("row %d: %v", id, err)
				}
			}
		})
	}
	wg.Wait()
	return n.Load()
}

// crowdEach is how many updates each of 64 makes: for longer under DBLOCK_SOAK.
func crowdEach() int {
	if os.Getenv(suite.EnvSoak) != "" {
		return 200
	}
	return 20
}

func countsOnOneRow(l *ledger) {
	calls := l.crowd(64, crowdEach(), func(int64) int64 { return 1 })
	l.want(1, 100+calls, 1+calls)
}

func countsOnManyRows(l *ledger) {
	const rows = 1000
	for id := int64(3); id <= rows; id++ {
		l.outside(fmt.Sprintf("INSERT INTO account VALUES (%d, 100, 1)", id))
	}
	calls := l.crowd(64, crowdEach(), func(n int64) int64 { return 1 + n*7919%rows })
	var balances, versions int64
	l.must(l.db.QueryRowContext(l.Context(), "SELECT SUM(balance - 100), SUM(version - 1) FROM account").Scan(&balances, &versions))
	if balances != calls || versions != calls {
		l.Errorf("the balances have grown by %d and the versions by %d, want %d", balances, versions, calls)
	}
}

// updatesAsUsual is for sessions that are not: there is no false success, and no end of repeating.
func updatesAsUsual(l *ledger) {
	calls := l.crowd(8, 10, func(n int64) int64 { return 1 + n%2 })
	if one, other := l.row(1), l.row(2); one.Balance+other.Balance != 200+calls || one.Version+other.Version != 2+calls {
		l.Errorf("%+v and %+v after %d updates", one, other, calls)
	}
	before := l.row(1)
	got, attempts, err := l.disturbed(false, 2)
	if want := (Account{1, before.Balance + 2010, before.Version + 3}); err != nil || got != want || attempts != 3 {
		l.Errorf("%d attempts, %+v, %v: want %+v", attempts, got, err, want)
	}
	if _, attempts, err := l.disturbed(false, 99, optimistic.Attempts(3)); attempts != 3 || !errors.Is(err, optimistic.ErrConflict) {
		l.Errorf("%d attempts of 3, %v", attempts, err)
	}
	// A change that is none still has a new version, or a driver would report that no row has changed.
	if _, err := l.pool.Update(l.Context(), Change{ID: 2, Mutate: add(0)}); err != nil {
		l.Errorf("a row that stays as it is: %v", err)
	}
	oneAttemptInACallersTx(l)
	doWritesAllOrNothing(l)
}

// takesNoMoreRoundTrips: as many as the two statements by hand.
func takesNoMoreRoundTrips(l *ledger) {
	var dialer faultconn.Dialer
	pool := l.open(&dialer, 1)
	byHand := func() {
		a, err := pool.Load(l.Context(), 1)
		l.must(err)
		a.Balance++
		_, err = pool.Save(l.Context(), a, false)
		l.must(err)
	}
	ours := func() {
		_, err := pool.Update(l.Context(), Change{ID: 1, Mutate: add(1)})
		l.must(err)
	}
	trips := func(f func()) int {
		f() // what is prepared is so by then
		dialer.Arm(0, 0, nil)
		f()
		return dialer.Writes()
	}
	if want, got := trips(byHand), trips(ours); got != want || want < 2 {
		l.Errorf("%d round trips, by hand %d", got, want)
	}
}
