package mysqllock_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/mysqllock"
)

// TestRowLocksCostFewRoundTrips: a row costs one statement, a bound two more, and the first use of
// a table three.
func TestRowLocksCostFewRoundTrips(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			cfg, err := mysql.ParseDSN(testdb.DSN(t, kind))
			if err != nil {
				t.Fatal(err)
			}
			var dialer faultconn.Dialer
			cfg.DialFunc, cfg.InterpolateParams = dialer.DialContext, true // so that a statement is one round trip
			connector, err := mysql.NewConnector(cfg)
			if err != nil {
				t.Fatal(err)
			}
			db := sql.OpenDB(connector)
			defer func() { _ = db.Close() }()
			if _, err := db.ExecContext(t.Context(), "CREATE TABLE round_trip (id BIGINT PRIMARY KEY)"); err != nil {
				t.Fatal(err)
			}
			err = mysqllock.RunTx(t.Context(), db, mysqllock.TxOptions{}, func(tx *sql.Tx) error {
				if _, err := tx.ExecContext(t.Context(), "INSERT INTO round_trip VALUES (1), (2)"); err != nil {
					return err
				}
				for i, want := range []int{4, 1, 1, 3} { // the first call for this table, in this database, looks at it and for the index
					dialer.Arm(0, 0, nil)
					wait := []dblock.TxWait{{}, {}, dblock.NoWait(), dblock.WaitAtMost(time.Second)}[i]
					if err := lockTwo(t.Context(), tx, cfg.DBName+".round_trip", wait); err != nil {
						return err
					}
					if n := dialer.Writes(); n != want {
						t.Errorf("call %d took %d round trips, want %d", i, n, want)
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

func lockTwo(ctx context.Context, tx *sql.Tx, table string, wait dblock.TxWait) error {
	_, err := mysqllock.LockRows(ctx, tx, table, "id", []int64{2, 1}, dblock.RowLock{Wait: wait})
	return err
}
