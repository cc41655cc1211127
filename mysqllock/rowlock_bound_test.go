package mysqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/mysqllock"
)

// TestBoundOfARowLockLeavesNothing ends the context of BeginTx while LockRow waits. On MariaDB the
// connection goes back to the pool with the host's own bound. On MySQL nothing can be restored
// then, as LockRow says.
func TestBoundOfARowLockLeavesNothing(t *testing.T) {
	t.Parallel()
	if !slices.Contains(family(), devdb.MariaDB) {
		return
	}
	db := testdb.MySQLOn(t, devdb.MariaDB)
	for _, statement := range []string{"CREATE TABLE waited (id BIGINT PRIMARY KEY)", "INSERT INTO waited VALUES (1)"} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	holder, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Rollback() }()
	if _, err := holder.ExecContext(t.Context(), "SELECT id FROM waited FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	host, err := db.Conn(t.Context()) // stays the same connection, as in a pool of one
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = host.Close() }()
	var id, own, left int64
	const ask = "SELECT CONNECTION_ID(), @@SESSION.innodb_lock_wait_timeout"
	if err := host.QueryRowContext(t.Context(), ask).Scan(&id, &own); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tx, err := host.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	locked := make(chan error, 1)
	go func() {
		locked <- mysqllock.LockRow(context.Background(), tx, "waited", "id", int64(1), dblock.RowLock{Wait: dblock.WaitAtMost(2 * time.Second)})
	}()
	awaitLockWait(t, db, id)
	cancel()
	if err := <-locked; !errors.Is(err, dblock.ErrNotAcquired) && !errors.Is(err, sql.ErrTxDone) {
		t.Errorf("got %v", err)
	}
	if err := host.QueryRowContext(t.Context(), ask).Scan(&id, &left); err != nil || left != own {
		t.Errorf("the connection waits for %d s, not %d, %v", left, own, err)
	}
}

// awaitLockWait returns when a connection waits for a row.
func awaitLockWait(t *testing.T, db *sql.DB, id int64) {
	t.Helper()
	const waits = "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = ? AND trx_state = 'LOCK WAIT'"
	for n := 0; n == 0; time.Sleep(150 * time.Millisecond) { // the server reads anew after 100 ms
		if err := db.QueryRowContext(t.Context(), waits, id).Scan(&n); err != nil {
			t.Fatal(err)
		}
	}
}

// TestALockedTableIsHeld has another session lock the table. A bound of a row lock bounds that
// wait, too, and afterwards the session has the host's own bound.
func TestALockedTableIsHeld(t *testing.T) {
	eachServer(t, func(t *testing.T, kind devdb.Kind) {
		db := testdb.MySQLOn(t, kind)
		do := func(on interface {
			ExecContext(context.Context, string, ...any) (sql.Result, error)
		}, statement string) {
			t.Helper()
			_, err := on.ExecContext(t.Context(), statement)
			require.NoError(t, err)
		}
		do(db, "CREATE TABLE altered (id BIGINT PRIMARY KEY)")
		do(db, "INSERT INTO altered VALUES (1)")
		first, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, mysqllock.LockRow(t.Context(), first, "altered", "id", int64(1), dblock.RowLock{})) // which looks at the table
		require.NoError(t, first.Rollback())
		holder, err := db.Conn(t.Context())
		require.NoError(t, err)
		do(holder, "LOCK TABLES altered WRITE")
		for _, wait := range []dblock.TxWait{dblock.WaitAtMost(2 * time.Second), dblock.NoWait(), dblock.SkipLocked()} {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			do(tx, "SET SESSION lock_wait_timeout = 77")
			held := new(dblock.HeldError)
			require.ErrorAs(t, mysqllock.LockRow(ctx, tx, "altered", "id", int64(1), dblock.RowLock{Wait: wait}), &held)
			require.NoError(t, ctx.Err())
			var left int64
			require.NoError(t, tx.QueryRowContext(ctx, "SELECT @@SESSION.lock_wait_timeout").Scan(&left))
			assert.EqualValues(t, 77, left)
			require.NoError(t, tx.Rollback())
		}
		do(holder, "UNLOCK TABLES")
		require.NoError(t, holder.Close())
	})
}
