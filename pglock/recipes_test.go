package pglock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	locksuite "github.com/dblock-go/dblock/internal/conformance/lock"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/migrations"
	"github.com/dblock-go/dblock/pglock"
)

func TestRecipes(t *testing.T) {
	t.Parallel()
	locksuite.Recipes{RowLocks: rows, OfGroup: map[string]locksuite.LockGroup{
		"LockTx": func(ctx context.Context, tx locksuite.RowTx, group int64) error {
			return pglock.LockTx(ctx, tx.(*rowTx).Tx, dblock.WaitAtMost(time.Minute), pglock.Key(group))
		},
	}}.Run(t)
}

// TestWhoWaitsAtRepeatableReadSeesWhatWasBefore: also if LockTx is the first statement, as the
// snapshot is taken before its wait.
func TestWhoWaitsAtRepeatableReadSeesWhatWasBefore(t *testing.T) {
	eachWay(t, func(t *testing.T, h lockHall) {
		ctx := soon(t)
		holder, tx := h.tx(t), h.tx(t)
		works(t, holder.Exec(ctx, "CREATE TABLE member AS SELECT 1 AS n"))
		works(t, holder.Commit(ctx))
		holder = h.tx(t)
		works(t, pglock.LockTx(ctx, holder.Tx, dblock.NoWait(), 1))
		works(t, holder.Exec(ctx, "INSERT INTO member VALUES (2)"))
		works(t, tx.Exec(ctx, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
		got := make(chan error, 1)
		go func() { got <- pglock.LockTx(ctx, tx.Tx, dblock.WaitAtMost(time.Minute), 1) }()
		waits(t, h)
		works(t, holder.Commit(ctx))
		works(t, <-got)
		if n, err := tx.Text(ctx, "SELECT count(*)::text FROM member"); err != nil || n != "1" {
			t.Errorf("%s members, %v: the recipes could be at REPEATABLE READ", n, err)
		}
	})
}

// TestSessionsAndTransactionsExclude: their locks are of one space, by the same keys.
func TestSessionsAndTransactionsExclude(t *testing.T) {
	t.Parallel()
	ctx := soon(t)
	pool := testdb.Postgres(t)
	sessions, err := pglock.NewSessionLocker(ctx, pool, pglock.SessionOptions{Namespace: "shop"})
	works(t, err)
	defer func() { works(t, sessions.Close(ctx)) }()
	tx, err := pool.Begin(ctx)
	works(t, err)
	defer func() { _ = tx.Rollback(ctx) }()
	key := pglock.KeyOf("shop", "stock")

	lock, err := sessions.Acquire(ctx, "stock")
	works(t, err)
	isHeldBy(t, pglock.LockTx(ctx, tx, dblock.NoWait(), key), key)
	works(t, lock.Release(ctx))
	works(t, pglock.LockTx(ctx, tx, dblock.NoWait(), key))
	if _, err := sessions.TryAcquire(ctx, "stock"); !errors.Is(err, dblock.ErrNotAcquired) {
		t.Errorf("beside a transaction's: %v", err)
	}
}

// TestLeasesBehindAPooler: where session locks are refused the recipe has leases.
func TestLeasesBehindAPooler(t *testing.T) {
	t.Parallel()
	ctx := soon(t)
	direct := testdb.PostgresURL(t)
	up, err := pgxpool.New(ctx, direct)
	works(t, err)
	_, err = migrations.Up(ctx, up, migrations.Options{})
	up.Close()
	works(t, err)
	pool, err := pgxpool.New(ctx, testdb.Pooled(t, direct))
	works(t, err)
	t.Cleanup(pool.Close)
	locks, err := locker(ctx, pool)
	works(t, err)
	if _, ok := locks.(*pglock.LeaseLocker); !ok {
		t.Errorf("%T", locks)
	}
	lock, err := locks.Acquire(ctx, "invoice-run")
	works(t, err)
	works(t, lock.Release(ctx))
	works(t, locks.Close(ctx))
}
