package mysqloptimistic_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/mysqloptimistic"
)

// TestValuesAreNoSQLInAnyCharset: in gbk the backslash that the driver puts before a quote is the
// second byte of a character, and a value goes on as SQL. The control is the driver's own
// statement, which hits every row.
func TestValuesAreNoSQLInAnyCharset(t *testing.T) {
	t.Parallel()
	const dsn = "charset=gbk&interpolateParams=true"
	key, note := "€' OR 1=1 -- ", "€', balance=999 -- "
	for _, kind := range family() {
		pool, err := openOn(suite.Appended(dsn)(t, testdb.DSN(t, kind)), &faultconn.Dialer{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = pool.Close() }()
		plain, err := mysqloptimistic.NewTable("account", "id", optimistic.Int("version"))
		if err != nil {
			t.Fatal(err)
		}
		columns, err := mysqloptimistic.NewTable("account", "id", optimistic.Columns("note"))
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			hits bool
			call func(ctx context.Context, db *sql.DB) error
		}{
			"the driver's own": {true, func(ctx context.Context, db *sql.DB) error {
				_, err := db.ExecContext(ctx, "DELETE FROM account WHERE id = ? AND version = ?", key, 7)
				return err
			}},
			"Delete": {false, func(ctx context.Context, db *sql.DB) error { return plain.Delete(ctx, db, key, 7) }},
			"Delete by columns": {false, func(ctx context.Context, db *sql.DB) error {
				return columns.Delete(ctx, db, "a", optimistic.Values{"note": key})
			}},
			"Update": {false, func(ctx context.Context, db *sql.DB) error {
				_, err := plain.Update(ctx, db, "a", 1, optimistic.Set{"note": note})
				return err
			}},
			"Update in bytes": {false, func(ctx context.Context, db *sql.DB) error {
				_, err := plain.Update(ctx, db, "a", 1, optimistic.Set{"note": sql.RawBytes(note)})
				return err
			}},
			"Update of any": {false, func(ctx context.Context, db *sql.DB) error {
				_, err := plain.Any().Update(ctx, db, key, optimistic.Set{"note": sql.NullString{String: note, Valid: true}})
				return err
			}},
			"Upsert": {false, func(ctx context.Context, db *sql.DB) error {
				_, err := plain.Upsert(ctx, db, key, optimistic.At[int64](7), optimistic.Set{"note": note})
				return err
			}},
			"UpdateMany": {false, func(ctx context.Context, db *sql.DB) error {
				_, err := plain.UpdateMany(ctx, db, []optimistic.Change[int64]{
					{Key: "a", Expected: 1, Set: optimistic.Set{"note": note}}, {Key: key, Expected: 1, Set: optimistic.Set{"note": "x"}},
				}, optimistic.UpdateEachRow)
				return err
			}},
			"Version": {false, func(ctx context.Context, db *sql.DB) error {
				_, err := plain.Version(ctx, db, key)
				return err
			}},
		} {
			for _, statement := range []string{
				"DROP TABLE IF EXISTS account",
				"CREATE TABLE account (id VARCHAR(50) PRIMARY KEY, balance BIGINT NOT NULL, note VARCHAR(50) NOT NULL, version BIGINT NOT NULL DEFAULT 1) CHARACTER SET utf8mb4",
				"INSERT INTO account (id, balance, note) VALUES ('a', 1, 'x'), ('b', 1, 'x'), ('c', 1, 'x')",
			} {
				if _, err := pool.ExecContext(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
			err := c.call(t.Context(), pool)
			var left int
			if err := pool.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM account WHERE balance = 1 AND id IN ('a', 'b', 'c')").Scan(&left); err != nil {
				t.Fatal(err)
			}
			if (left != 3) != c.hits {
				t.Errorf("%s, %s: %d of 3 rows are as they were (%v)", kind, name, left, err)
			}
		}
	}
}

// TestNamesAreRefusedWhereTheyBreak: in gbk the last byte of a name takes its backtick with it. A
// transaction's character set may have changed since its connection was made.
func TestNamesAreRefusedWhereTheyBreak(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		pool, err := openOn(suite.Appended("charset=utf8mb4&interpolateParams=true")(t, testdb.DSN(t, kind)), &faultconn.Dialer{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = pool.Close() }()
		if _, err := pool.ExecContext(t.Context(), "CREATE TABLE `k€` (id BIGINT PRIMARY KEY, version BIGINT NOT NULL DEFAULT 1)"); err != nil {
			t.Fatal(err)
		}
		for _, charset := range []string{"utf8mb4", "gbk"} {
			table, err := mysqloptimistic.NewTable("k€", "id", optimistic.Int("version"))
			if err != nil {
				t.Fatal(err)
			}
			tx, err := pool.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.ExecContext(t.Context(), "SET NAMES "+charset); err != nil {
				t.Fatal(err)
			}
			err = table.Check(t.Context(), tx)
			if refused := errors.Is(err, dblock.ErrUnsupported); refused != (charset == "gbk") || err != nil && !refused {
				t.Errorf("%s, %s: %v", kind, charset, err)
			}
			_, _ = tx.ExecContext(t.Context(), "SET NAMES utf8mb4")
			_ = tx.Rollback()
		}
	}
}
