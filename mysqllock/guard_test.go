package mysqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/mysqllock"
)

// TestAGuardThatIsGone: after a deadlock these servers have rolled everything back, the guard, too,
// and write what comes then statement by statement. A caller that ignores the error must not get a
// success.
func TestAGuardThatIsGone(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			db := testdb.MigratedMySQL(t, kind)
			l, err := mysqllock.NewLeaseLocker(t.Context(), db, mysqllock.LeaseOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close(context.Background()) }()
			lock, err := l.Acquire(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = lock.Release(context.Background()) }()
			for swallows, want := range map[bool]error{true: dblock.ErrTxEnded, false: nil} {
				err = l.GuardedTx(t.Context(), lock, func(ctx context.Context, tx *sql.Tx) error {
					if swallows {
						_, _ = tx.ExecContext(ctx, "ROLLBACK") // as the server does it for a deadlock
					}
					_, err := tx.ExecContext(ctx, "SELECT 1")
					return err
				})
				if !errors.Is(err, want) {
					t.Errorf("%v: got %v, want %v", swallows, err, want)
				}
			}
		})
	}
}
