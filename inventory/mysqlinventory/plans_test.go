package mysqlinventory_test

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/testdb"
)

// TestNothingElseIsLocked: statements that lock find their rows by the key, however few there are
// in a table. In a scan they would wait for rows that others have locked, and every row here is
// locked but those that are asked for.
func TestNothingElseIsLocked(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			for _, others := range []int{1, 3, 400} {
				t.Run(fmt.Sprint(others), func(t *testing.T) {
					t.Parallel()
					db := testdb.MigratedMySQL(t, kind)
					tx := lockOthers(t, db, others)
					defer func() { _ = tx.Rollback() }()
					for name, statement := range lockingStatements(2) {
						if err := tryLock(t, db, statement); err != nil {
							t.Errorf("%s: %v", name, err)
						}
					}
					const control = "SELECT available FROM dblock_stock FORCE INDEX (PRIMARY) WHERE available < 0 FOR UPDATE"
					if err := tryLock(t, db, control); err == nil {
						t.Error("a scan waits for nobody: this test shows nothing")
					}
				})
			}
		})
	}
}

// lockOthers fills the tables, and locks all rows but those of the names 1 and 2.
func lockOthers(t *testing.T, db *sql.DB, others int) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		t.Fatal(err)
	}
	for i := range others + 2 {
		name := []byte(fmt.Sprint(i + 1))
		exec := db.ExecContext
		if i >= 2 {
			exec = tx.ExecContext
		}
		for _, query := range []string{
			"INSERT INTO dblock_stock (sku, available) VALUES (?, 9)",
			"INSERT INTO dblock_quota VALUES (?, 'buyer', 1, 9)",
			"INSERT INTO dblock_reservation (reservation_key, sku, buyer, qty, state) VALUES (?, 'sku', '', 1, 1)",
		} {
			if _, err := exec(t.Context(), mysql.Interpolate(query, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return tx
}

// lockingStatements are all of them, for the names 1 to n.
func lockingStatements(n int) map[string]string {
	var one, two, keys, quotas, units []any
	for i := range n {
		name := []byte(fmt.Sprint(i + 1))
		one = append(one, name)
		two = append(two, name, []byte("buyer"))
		keys = append(keys, name, int64(2), int64(0))
		quotas = append(quotas, name, []byte("buyer"), int64(1))
		units = append(units, name, int64(0), int64(1))
	}
	return map[string]string{
		"AddQuotas":        mysql.Interpolate(mysqldb.AddQuotas, two...),
		"LockQuotas":       mysql.Interpolate(mysqldb.LockQuotas, two...),
		"LockQuotasNoWait": mysql.Interpolate(mysqldb.LockQuotasNoWait, two...),
		"LockStock":        mysql.Interpolate(mysqldb.LockStock, one...),
		"LockFirstBuckets": mysql.Interpolate(mysqldb.LockFirstBuckets, one...),
		"LockReservations": mysql.Interpolate(mysqldb.LockReservations, one...),
		"LockKeysNoWait":   mysql.Interpolate(mysqldb.LockKeysNoWait, one...),
		"SetReservations":  mysql.Interpolate(mysqldb.SetReservations, keys...),
		"UncountQuotas":    mysql.Interpolate(mysqldb.UncountQuotas, quotas...),
		"AddStock":         mysql.Interpolate(mysqldb.AddStock, units...),
		"TakeStock":        mysql.Interpolate(mysqldb.TakeStock, units...),
	}
}

// tryLock runs a statement that may wait for a second, which is as short as the servers' bound can
// be.
func tryLock(t *testing.T, db *sql.DB, statement string) error {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for _, set := range []string{
		"SET SESSION innodb_lock_wait_timeout = 1", "SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "START TRANSACTION",
	} {
		if _, err := conn.ExecContext(t.Context(), set); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		if _, err := conn.ExecContext(t.Context(), "ROLLBACK"); err != nil {
			t.Error(err)
		}
	}()
	_, err = conn.ExecContext(t.Context(), statement)
	return err
}
