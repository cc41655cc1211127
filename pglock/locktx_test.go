package pglock_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock"
	locksuite "github.com/dblock-go/dblock/internal/conformance/lock"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/pglock"
)

// lockHall begins transactions of one database.
type lockHall struct {
	begin func(context.Context) (locksuite.RowTx, error)
}

// eachWay runs a test through pgx, through database/sql, and behind a pooler.
func eachWay(t *testing.T, test func(*testing.T, lockHall)) {
	t.Parallel()
	for name, way := range map[string]struct {
		e      locksuite.RowLocks
		pooled bool
	}{"pgx": {rows, false}, "database/sql": {rowsSQL, false}, "PgBouncer": {rows, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := testdb.PostgresURL(t)
			if way.pooled {
				dsn = testdb.Pooled(t, dsn)
			}
			begin, closePool, err := way.e.Open(dsn, 10, 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(closePool)
			test(t, lockHall{begin})
		})
	}
}

func (h lockHall) tx(t *testing.T) *rowTx {
	t.Helper()
	tx, err := h.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx.(*rowTx)
}

func isHeldBy(t *testing.T, err error, key pglock.Key) *dblock.HeldError {
	t.Helper()
	var held *dblock.HeldError
	if !errors.As(err, &held) || !errors.Is(err, dblock.ErrNotAcquired) || held.Key != strconv.FormatInt(int64(key), 10) {
		t.Fatalf("got %v, want %d held", err, key)
	}
	return held
}

func works(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestLockTxIsAllOrNone: of a refused set nothing stays, and the transaction is as it was.
func TestLockTxIsAllOrNone(t *testing.T) {
	eachWay(t, func(t *testing.T, h lockHall) {
		ctx := soon(t)
		held := pglock.KeyOf("shop", "held")
		set := []pglock.Key{math.MaxInt64, held, 7, math.MinInt64, 7}
		other, tx, third := h.tx(t), h.tx(t), h.tx(t)
		works(t, pglock.LockTx(ctx, other.Tx, dblock.NoWait(), held))
		works(t, tx.Exec(ctx, "CREATE TABLE note AS SELECT 1 AS n"))
		works(t, tx.Exec(ctx, "SET LOCAL lock_timeout = '77s'"))
		usable := func() {
			t.Helper()
			if now, err := tx.Text(ctx, "SELECT current_setting('lock_timeout')"); err != nil || now != "77s" {
				t.Fatalf("lock_timeout is %q, %v", now, err)
			}
		}
		for _, lock := range []func() error{
			func() error { return pglock.LockTx(ctx, tx.Tx, dblock.NoWait(), set...) },
			func() error { return pglock.LockTxShared(ctx, tx.Tx, dblock.NoWait(), set...) },
			func() error { return pglock.LockTx(ctx, tx.Tx, dblock.WaitAtMost(50*time.Millisecond), set...) },
			func() error { return pglock.LockTxShared(ctx, tx.Tx, dblock.WaitAtMost(50*time.Millisecond), set...) },
		} {
			isHeldBy(t, lock(), held)
			usable()
		}
		works(t, pglock.LockTx(ctx, third.Tx, dblock.NoWait(), math.MaxInt64, 7, math.MinInt64))
		works(t, third.Rollback(ctx))
		works(t, other.Rollback(ctx))
		works(t, pglock.LockTx(ctx, tx.Tx, dblock.WaitAtMost(time.Minute), set...))
		usable()
		for _, key := range set {
			isHeldBy(t, pglock.LockTx(ctx, h.tx(t).Tx, dblock.NoWait(), key), key)
			if key == 7 {
				break // connections are few
			}
		}
		works(t, tx.Exec(ctx, "INSERT INTO note VALUES (2)"))
		works(t, tx.Commit(ctx))
		if n, err := h.tx(t).Text(ctx, "SELECT count(*)::text FROM note"); err != nil || n != "2" {
			t.Errorf("%s of 2 notes, %v", n, err)
		}
	})
}

// TestLockTxModes: shared ones go together, and nothing goes beside an exclusive one.
func TestLockTxModes(t *testing.T) {
	eachWay(t, func(t *testing.T, h lockHall) {
		ctx := soon(t)
		one, two, tx := h.tx(t), h.tx(t), h.tx(t)
		works(t, pglock.LockTxShared(ctx, one.Tx, dblock.WaitAtMost(time.Second), 1, 2))
		works(t, pglock.LockTxShared(ctx, two.Tx, dblock.NoWait(), 2, 3))
		isHeldBy(t, pglock.LockTx(ctx, tx.Tx, dblock.NoWait(), 3, 4), 3)
		works(t, pglock.LockTx(ctx, tx.Tx, dblock.NoWait(), 4))
		isHeldBy(t, pglock.LockTxShared(ctx, two.Tx, dblock.NoWait(), 4), 4)
		works(t, pglock.LockTx(ctx, tx.Tx, dblock.NoWait(), 4)) // once more
	})
}

// TestLockTxEnds: with commit, rollback, and rollback to a savepoint from before.
func TestLockTxEnds(t *testing.T) {
	eachWay(t, func(t *testing.T, h lockHall) {
		ctx := soon(t)
		for _, end := range []func(*rowTx) error{
			func(tx *rowTx) error { return tx.Commit(ctx) },
			func(tx *rowTx) error { return tx.Rollback(ctx) },
			func(tx *rowTx) error { return tx.Exec(ctx, "ROLLBACK TO SAVEPOINT mine") },
		} {
			tx, other := h.tx(t), h.tx(t)
			works(t, tx.Exec(ctx, "SAVEPOINT mine"))
			works(t, pglock.LockTx(ctx, tx.Tx, dblock.WaitAtMost(time.Second), 1, 2))
			isHeldBy(t, pglock.LockTx(ctx, other.Tx, dblock.NoWait(), 2), 2)
			works(t, end(tx))
			works(t, pglock.LockTx(ctx, other.Tx, dblock.NoWait(), 1, 2))
			works(t, other.Rollback(ctx))
			_ = tx.Rollback(ctx)
		}
	})
}

// TestLockTxWaits: for the release, whatever lock_timeout says; for lock_timeout; for the context;
// and no longer for many than for one.
func TestLockTxWaits(t *testing.T) {
	eachWay(t, func(t *testing.T, h lockHall) {
		holder, tx := h.tx(t), h.tx(t)
		works(t, pglock.LockTx(t.Context(), holder.Tx, dblock.NoWait(), 1))
		works(t, tx.Exec(t.Context(), "SET LOCAL lock_timeout = '1ms'"))
		got := make(chan error, 1)
		go func() { got <- pglock.LockTx(soon(t), tx.Tx, dblock.WaitForContext(), 1) }()
		waits(t, h)
		works(t, holder.Rollback(t.Context()))
		works(t, <-got)
		short := h.tx(t)
		works(t, short.Exec(t.Context(), "SET LOCAL lock_timeout = '10ms'"))
		if held := isHeldAny(t, pglock.LockTx(soon(t), short.Tx, dblock.TxWait{}, 1)); held.Wait == nil {
			t.Errorf("%v does not say that lock_timeout ended the wait", held)
		}

		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		held := isHeldAny(t, pglock.LockTx(ctx, h.tx(t).Tx, dblock.WaitAtMost(time.Minute), 1))
		if !errors.Is(held, context.DeadlineExceeded) {
			t.Errorf("the wait ended by %v", held)
		}

		const bound = 9 * time.Second
		first, second := h.tx(t), h.tx(t)
		works(t, pglock.LockTx(t.Context(), first.Tx, dblock.NoWait(), 11))
		works(t, pglock.LockTx(t.Context(), second.Tx, dblock.NoWait(), 12))
		began, ended := time.Now(), make(chan error, 1)
		time.AfterFunc(bound*2/3, func() { ended <- first.Rollback(context.Background()) })
		isHeldBy(t, pglock.LockTx(soon(t), h.tx(t).Tx, dblock.WaitAtMost(bound), 12, 11), 12)
		if took := time.Since(began); took < bound || took > bound*3/2 {
			t.Errorf("it took %v, and was to take %v", took, bound)
		}
		works(t, <-ended)
	})
}

func isHeldAny(t *testing.T, err error) *dblock.HeldError {
	t.Helper()
	var held *dblock.HeldError
	if !errors.As(err, &held) {
		t.Fatalf("got %v, want it held", err)
	}
	return held
}

// waits returns when a session waits for an advisory lock.
func waits(t *testing.T, h lockHall) {
	t.Helper()
	const query = `SELECT count(*)::text FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
	tx, ctx := h.tx(t), soon(t)
	for n := ""; n != "1"; {
		var err error
		if n, err = tx.Text(ctx, query); err != nil {
			t.Fatal(err)
		}
	}
	works(t, tx.Rollback(ctx))
}

// TestLockTxSetsNeverDeadlock: in whatever order they are asked for.
func TestLockTxSetsNeverDeadlock(t *testing.T) {
	eachWay(t, func(t *testing.T, h lockHall) {
		forth := []pglock.Key{5, -3, 9, 1, 7}
		back := slices.Clone(forth)
		slices.Reverse(back)
		ctx := soon(t)
		var callers sync.WaitGroup
		for _, keys := range [][]pglock.Key{forth, back} {
			callers.Go(func() {
				for range 60 {
					tx, err := h.begin(ctx)
					if err == nil {
						err = pglock.LockTx(ctx, tx.(*rowTx).Tx, dblock.WaitForContext(), keys...)
					}
					if err == nil {
						err = tx.Commit(ctx)
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		callers.Wait()
	})
}

// TestControlLockTxOneByOne: taken one by one, in opposite orders, they deadlock, and that is a
// conflict.
func TestControlLockTxOneByOne(t *testing.T) {
	eachWay(t, func(t *testing.T, h lockHall) {
		ctx := soon(t)
		a, b := h.tx(t), h.tx(t)
		works(t, pglock.LockTx(ctx, a.Tx, dblock.NoWait(), 1))
		works(t, pglock.LockTx(ctx, b.Tx, dblock.NoWait(), 2))
		other := make(chan error, 1)
		go func() {
			err := pglock.LockTx(ctx, a.Tx, dblock.WaitForContext(), 2)
			_ = a.Rollback(ctx)
			other <- err
		}()
		err := pglock.LockTx(ctx, b.Tx, dblock.WaitForContext(), 1)
		_ = b.Rollback(ctx)
		one := <-other
		if errors.Is(err, dblock.ErrConflict) == errors.Is(one, dblock.ErrConflict) || pglock.Retryable(err) == pglock.Retryable(one) {
			t.Errorf("%v, and %v: one of them should have given way", err, one)
		}
	})
}

func TestLockTxErrors(t *testing.T) {
	eachWay(t, func(t *testing.T, h lockHall) {
		ctx := soon(t)
		tx := h.tx(t)
		for name, err := range map[string]error{
			"no wait":    pglock.LockTx(ctx, tx.Tx, dblock.WaitAtMost(0), 1),
			"negative":   pglock.LockTxShared(ctx, tx.Tx, dblock.WaitAtMost(-time.Second), 1),
			"a fraction": pglock.LockTx(ctx, tx.Tx, dblock.WaitAtMost(1500*time.Microsecond), 1),
			"a month":    pglock.LockTx(ctx, tx.Tx, dblock.WaitAtMost(30*24*time.Hour), 1),
			"skipping":   pglock.LockTx(ctx, tx.Tx, dblock.SkipLocked(), 1),
			"no keys":    pglock.LockTx(ctx, tx.Tx, dblock.NoWait()),
			"too many":   pglock.LockTxShared(ctx, tx.Tx, dblock.NoWait(), numbers(dblock.MaxSetKeys+1)...),
		} {
			var invalid *dblock.InvalidError
			if !errors.As(err, &invalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		works(t, pglock.LockTx(ctx, tx.Tx, dblock.WaitAtMost(24*24*time.Hour), numbers(dblock.MaxSetKeys)...))
		if err := tx.Exec(ctx, "SELECT 1/0"); err == nil {
			t.Fatal("no error")
		}
		says(t, pglock.LockTx(ctx, tx.Tx, dblock.NoWait(), 1), "an earlier statement of the transaction has failed")
		works(t, tx.Rollback(ctx))
		says(t, pglock.LockTx(ctx, tx.Tx, dblock.WaitAtMost(time.Second), 1), "the transaction has ended")
	})
}

func numbers(n int) (keys []pglock.Key) {
	for i := range n {
		keys = append(keys, pglock.Key(i))
	}
	return keys
}

func says(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v does not say %q", err, want)
	}
}

// failing is a transaction whose statements fail.
type failing struct {
	pgx.Tx
	code string
}

func (f failing) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, &pgconn.PgError{Code: f.code}
}

// TestLockTxOfAFullServer, and of a standby: it does not take a server that is full for all other
// tests.
func TestLockTxOfAFullServer(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]error{"53200": dblock.ErrOverloaded, "25006": dblock.ErrUnavailable, "40P01": dblock.ErrConflict} {
		err := pglock.LockTx(t.Context(), failing{code: code}, dblock.NoWait(), 1)
		if !errors.Is(err, want) || errors.Is(err, dblock.ErrNotAcquired) {
			t.Errorf("%s: %v", code, err)
		}
	}
}

// TestRoundTrips: locks, and refusals, cost one message each. A row's bound costs one more, before
// the lock.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	ctx := soon(t)
	pool := testdb.Postgres(t)
	_, err := pool.Exec(ctx, "CREATE TABLE seat AS SELECT n AS id FROM generate_series(1, 5) n")
	works(t, err)
	other, err := pool.Begin(ctx)
	works(t, err)
	defer func() { _ = other.Rollback(ctx) }()
	works(t, pglock.LockTx(ctx, other, dblock.NoWait(), 2))
	works(t, pglock.LockRow(ctx, other, "seat", "id", 2, dblock.RowLock{}))
	inner, err := pool.Begin(ctx)
	works(t, err)
	defer func() { _ = inner.Rollback(ctx) }()
	tx := &counting{Tx: inner}
	for name, c := range map[string]struct {
		call func() error
		want int
	}{
		"lock":        {func() error { return pglock.LockTx(ctx, tx, dblock.WaitAtMost(time.Second), 1, 3) }, 1},
		"refused":     {func() error { return pglock.LockTx(ctx, tx, dblock.WaitAtMost(20*time.Millisecond), 1, 2) }, 1},
		"try":         {func() error { return pglock.LockTx(ctx, tx, dblock.NoWait(), 1, 3) }, 1},
		"try refused": {func() error { return pglock.LockTx(ctx, tx, dblock.NoWait(), 1, 2) }, 1},
		"row":         {func() error { return pglock.LockRow(ctx, tx, "seat", "id", 1, dblock.RowLock{}) }, 1},
		"row, now":    {func() error { return pglock.LockRow(ctx, tx, "seat", "id", 1, dblock.RowLock{Wait: dblock.NoWait()}) }, 1},
		"row, bound": {func() error {
			return pglock.LockRow(ctx, tx, "seat", "id", 1, dblock.RowLock{Wait: dblock.WaitAtMost(time.Second)})
		}, 2},
		"row refused": {func() error {
			return pglock.LockRow(ctx, tx, "seat", "id", 2, dblock.RowLock{Wait: dblock.WaitAtMost(20 * time.Millisecond)})
		}, 3},
		"row, now, refused": {func() error { return pglock.LockRow(ctx, tx, "seat", "id", 2, dblock.RowLock{Wait: dblock.NoWait()}) }, 2},
	} {
		tx.n = 0
		err := c.call()
		if refused := strings.Contains(name, "refused"); refused != errors.Is(err, dblock.ErrNotAcquired) || !refused && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if tx.n != c.want {
			t.Errorf("%s took %d round trips, want %d", name, tx.n, c.want)
		}
	}
}

// counting counts what is sent.
type counting struct {
	pgx.Tx
	n int
}

func (c *counting) Exec(ctx context.Context, q string, args ...any) (pgconn.CommandTag, error) {
	c.n++
	return c.Tx.Exec(ctx, q, args...)
}

func (c *counting) Query(ctx context.Context, q string, args ...any) (pgx.Rows, error) {
	c.n++
	return c.Tx.Query(ctx, q, args...)
}

func (c *counting) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	c.n++
	return c.Tx.SendBatch(ctx, b)
}
