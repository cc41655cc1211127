package mysqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/mysqllock"
)

// TestKeysAreNoSQLInAnyCharset: in gbk the backslash that the driver puts before a quote is the
// second byte of a character, and a key goes on as SQL. The control is the driver's own query,
// which returns every row.
func TestKeysAreNoSQLInAnyCharset(t *testing.T) {
	t.Parallel()
	key := "€' OR 1=1 -- "
	for _, kind := range family() {
		pool, err := sql.Open("mysql", suite.Appended("charset=gbk&interpolateParams=true")(t, testdb.DSN(t, kind)))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = pool.Close() }()
		for _, statement := range []string{
			"CREATE TABLE seat (id VARCHAR(50) PRIMARY KEY) CHARACTER SET gbk",
			"CREATE TABLE parts (id VARCHAR(50) PRIMARY KEY) CHARACTER SET gbk PARTITION BY KEY (id) PARTITIONS 2",
			"INSERT INTO seat VALUES ('a'), ('b'), ('c')", "INSERT INTO parts VALUES ('a'), ('b'), ('c')",
		} {
			if _, err := pool.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		read := func(r *sql.Rows) (id string, err error) { return id, r.Scan(&id) }
		locked := func(table string) func(context.Context, *sql.Tx) (int, error) {
			return func(ctx context.Context, tx *sql.Tx) (int, error) {
				rows, err := mysqllock.LockRows(ctx, tx, table, "id", []string{key, "€\\"}, dblock.RowLock{})
				return len(rows.Locked), err
			}
		}
		for name, c := range map[string]struct {
			want int
			call func(context.Context, *sql.Tx) (int, error)
		}{
			"the driver's own": {3, func(ctx context.Context, tx *sql.Tx) (n int, err error) {
				rows, err := tx.QueryContext(ctx, "SELECT id FROM seat WHERE id = ?", key)
				if err != nil {
					return 0, err
				}
				for ; rows.Next(); n++ {
				}
				return n, rows.Err()
			}},
			"LockRows": {0, locked("seat")}, "LockRows of parts": {0, locked("parts")},
			"Claim": {0, func(ctx context.Context, tx *sql.Tx) (int, error) {
				rows, err := mysqllock.Claim(ctx, tx, dblock.RowLock{}, 3, read, "SELECT id FROM seat WHERE id = ?", key)
				return len(rows), err
			}},
			"Claim with scans": {0, func(ctx context.Context, tx *sql.Tx) (int, error) {
				rows, err := mysqllock.Claim(ctx, tx, dblock.RowLock{Scan: true}, 3, read, "SELECT id FROM seat WHERE id = ?", []byte(key))
				return len(rows), err
			}},
		} {
			tx, err := pool.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if n, err := c.call(t.Context(), tx); n != c.want { // the server may refuse the text
				t.Errorf("%s, %s: %d rows, want %d: %v", kind, name, n, c.want, err)
			}
			_ = tx.Rollback()
		}
	}
}

// TestNamesAreRefusedWhereTheyBreak: in gbk the last byte of a name takes its backtick with it.
func TestNamesAreRefusedWhereTheyBreak(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		pool, err := sql.Open("mysql", suite.Appended("charset=gbk")(t, testdb.DSN(t, kind)))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = pool.Close() }()
		tx, err := pool.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := mysqllock.LockRow(t.Context(), tx, "k€", "id", 1, dblock.RowLock{}); !errors.Is(err, dblock.ErrUnsupported) {
			t.Errorf("%s: LockRow: %v", kind, err)
		}
		_ = tx.Rollback()
		if _, err := mysqllock.NewLeaseLocker(t.Context(), pool, mysqllock.LeaseOptions{Schema: "k€"}); !errors.Is(err, dblock.ErrUnsupported) {
			t.Errorf("%s: NewLeaseLocker: %v", kind, err)
		}
	}
}
