package pglock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/pglock"
)

// TestGuardedTxThatLosesItsLockInTheCommit: a trigger keeps the COMMIT back until the lock is lost,
// and survives the cancel. What was written stands, so the error must not say that nothing was.
func TestGuardedTxThatLosesItsLockInTheCommit(t *testing.T) {
	t.Parallel()
	pool, ctx := testdb.MigratedPostgres(t), t.Context()
	execute(t, pool, `CREATE TABLE written (n INT);
		CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
			BEGIN PERFORM pg_sleep(60); EXCEPTION WHEN query_canceled THEN NULL; END; RETURN NULL;
		END$$;
		CREATE CONSTRAINT TRIGGER late AFTER INSERT ON written DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION late()`)
	l, err := pglock.NewLeaseLocker(ctx, pool, pglock.LeaseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close(context.Background()) }()
	lock, err := l.Acquire(ctx, "k", dblock.WithMaxHold(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Release(context.Background()) }()
	err = l.GuardedTx(ctx, lock, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO written VALUES (1)")
		return err
	})
	if !errors.Is(err, dblock.ErrOutcomeUnknown) || errors.Is(err, dblock.ErrLost) || !strings.Contains(err.Error(), string(dblock.ReasonTimeUp)) {
		t.Errorf("got %v", err)
	}
	for rows := 0; rows == 0; { // until the server has committed
		if err := pool.QueryRow(ctx, "SELECT count(*) FROM written").Scan(&rows); err != nil {
			t.Fatal(err)
		}
	}
}
