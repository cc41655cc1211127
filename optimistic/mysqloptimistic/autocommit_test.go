package mysqloptimistic_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/dblock-go/dblock"
	optimisticsuite "github.com/dblock-go/dblock/internal/conformance/optimistic"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/mysqloptimistic"
)

// TestAutocommitOff: a pool whose connections commit nothing by themselves is refused, because an
// update on it would be acknowledged and never be written. Within a transaction it is as good as
// any.
func TestAutocommitOff(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			ctx, dsn := t.Context(), testdb.DSN(t, kind)
			plain, err := openOn(dsn, &faultconn.Dialer{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = plain.Close() }()
			for _, text := range []string{
				"CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, version BIGINT NOT NULL DEFAULT 1)",
				"INSERT INTO account VALUES (1, 0, 1)",
			} {
				if _, err := plain.ExecContext(ctx, text); err != nil {
					t.Fatal(err)
				}
			}
			pool, err := openOn(suite.Appended("autocommit=0")(t, dsn), &faultconn.Dialer{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = pool.Close() }()
			refusesToWrite(ctx, t, pool)

			err = mysqloptimistic.Do(ctx, pool, func(ctx context.Context, tx *sql.Tx, _ int) error {
				table, err := mysqloptimistic.NewTable("account", "id", optimistic.Int("version"))
				if err == nil {
					_, err = table.Update(ctx, tx, 1, 1, optimistic.Set{"balance": 7})
				}
				return err
			})
			var balance, version int64
			if read := plain.QueryRowContext(ctx, "SELECT balance, version FROM account").Scan(&balance, &version); err != nil || read != nil ||
				balance != 7 || version != 2 {
				t.Errorf("after a transaction the balance is %d at version %d, want 7 at 2: %v, %v", balance, version, err, read)
			}
		})
	}
}

// TestReadUncommitted: a pool whose connections read what others have not committed is refused,
// because a version that is read may be rolled back. Do gives its transactions an isolation of
// their own.
func TestReadUncommitted(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			isolation := map[devdb.Kind]string{devdb.MySQL: "transaction_isolation", devdb.MariaDB: "tx_isolation"}[kind]
			ctx := t.Context()
			pool, err := openOn(suite.Appended(isolation+"=%27READ-UNCOMMITTED%27")(t, testdb.DSN(t, kind)), &faultconn.Dialer{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = pool.Close() }()
			for _, text := range []string{
				"CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, version BIGINT NOT NULL DEFAULT 1)",
				"INSERT INTO account VALUES (1, 0, 1)",
			} {
				if _, err := pool.ExecContext(ctx, text); err != nil {
					t.Fatal(err)
				}
			}
			refusesToWrite(ctx, t, pool)
			table, err := mysqloptimistic.NewTable("account", "id", optimistic.Int("version"))
			if err != nil {
				t.Fatal(err)
			}
			err = mysqloptimistic.Do(ctx, pool, func(ctx context.Context, tx *sql.Tx, _ int) error {
				_, err := table.Update(ctx, tx, 1, 1, optimistic.Set{"balance": 7})
				return err
			})
			if err != nil {
				t.Error(err)
			}
			var balance, version int64
			if err := pool.QueryRowContext(ctx, "SELECT balance, version FROM account").Scan(&balance, &version); err != nil ||
				balance != 7 || version != 2 {
				t.Errorf("the balance is %d at version %d, %v; want 7 at 2", balance, version, err)
			}
		})
	}
}

// TestSelectLimit: a pool whose connections have a sql_select_limit is refused. In a transaction
// UpdateMany reads all rows.
func TestSelectLimit(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			pool, err := openOn(suite.Appended("sql_select_limit=2")(t, testdb.DSN(t, kind)), &faultconn.Dialer{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = pool.Close() }()
			for _, text := range []string{
				"CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, version BIGINT NOT NULL DEFAULT 1)",
				"INSERT INTO account (id, balance) VALUES (1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 0)",
			} {
				if _, err := pool.ExecContext(ctx, text); err != nil {
					t.Fatal(err)
				}
			}
			table, err := mysqloptimistic.NewTable("account", "id", optimistic.Int("version"))
			if err != nil {
				t.Fatal(err)
			}
			var changes []optimistic.Change[int64]
			for id := range 6 {
				changes = append(changes, optimistic.Change[int64]{Key: id + 1, Expected: 1, Set: optimistic.Set{"balance": 7}})
			}
			if _, err := table.UpdateMany(ctx, pool, changes, optimistic.UpdateEachRow); !errors.Is(err, dblock.ErrInvalid) {
				t.Errorf("on the pool: %v, want it refused", err)
			}
			tx, err := pool.BeginTx(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }()
			_, err = tx.ExecContext(ctx, "SET SESSION sql_select_limit = 3") // as many as the table has columns
			if err != nil {
				t.Fatal(err)
			}
			results, err := table.UpdateMany(ctx, tx, changes, optimistic.UpdateEachRow)
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range results {
				if r.Verdict != optimistic.VerdictUpdated || r.Version != 2 {
					t.Errorf("row %d: %+v", i, r)
				}
			}
		})
	}
}

// TestCompletionType: a pool whose connections have a transaction follow each one is refused,
// because what follows is not committed.
func TestCompletionType(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			for setting, want := range map[string]error{"completion_type=0": nil, "completion_type=1": dblock.ErrInvalid, "completion_type=2": dblock.ErrInvalid} {
				pool, err := openOn(suite.Appended(setting)(t, testdb.DSN(t, kind)), &faultconn.Dialer{})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = pool.Close() }()
				if _, err := pool.ExecContext(t.Context(), "CREATE TABLE account (id BIGINT PRIMARY KEY, version BIGINT NOT NULL DEFAULT 1)"); err != nil {
					t.Fatal(err)
				}
				table, err := mysqloptimistic.NewTable("account", "id", optimistic.Int("version"))
				if err != nil {
					t.Fatal(err)
				}
				if err := table.Check(t.Context(), pool); !errors.Is(err, want) {
					t.Errorf("%s: %v; want %v", setting, err, want)
				}
			}
		})
	}
}

// refusesToWrite fails if an update on the pool is not refused.
func refusesToWrite(ctx context.Context, t *testing.T, pool *sql.DB) {
	t.Helper()
	set := optimistic.Set{"balance": 5}
	writes := map[string]func(table *mysqloptimistic.Table[int64]) error{
		"Check": func(table *mysqloptimistic.Table[int64]) error { return table.Check(ctx, pool) },
		"Update": func(table *mysqloptimistic.Table[int64]) error {
			_, err := table.Update(ctx, pool, 1, 1, set)
			return err
		},
		"Version": func(table *mysqloptimistic.Table[int64]) error {
			_, err := table.Version(ctx, pool, 1)
			return err
		},
		"Delete": func(table *mysqloptimistic.Table[int64]) error { return table.Delete(ctx, pool, 1, 1) },
		"UpdateMany": func(table *mysqloptimistic.Table[int64]) error {
			_, err := table.UpdateMany(ctx, pool, []optimistic.Change[int64]{{Key: 1, Expected: 1, Set: set}}, optimistic.UpdateEachRow)
			return err
		},
		"Update of a function": func(*mysqloptimistic.Table[int64]) error {
			add := func(_ context.Context, a *optimisticsuite.Account) error { a.Balance++; return nil }
			_, err := accounts(pool).Update(ctx, optimisticsuite.Change{ID: 1, Mutate: add})
			return err
		},
	}
	for name, write := range writes {
		for _, checked := range []bool{false, true} {
			table, err := mysqloptimistic.NewTable("account", "id", optimistic.Int("version"))
			if err != nil {
				t.Fatal(err)
			}
			if checked { // in a transaction, which says nothing of the pool
				tx, err := pool.BeginTx(ctx, nil)
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(table.Check(ctx, tx), tx.Rollback()); err != nil {
					t.Fatal(err)
				}
				if name == "Check" {
					continue
				}
			}
			if err := write(table); !errors.Is(err, dblock.ErrInvalid) {
				t.Errorf("%s: %v, want it refused", name, err)
			}
		}
	}
}
