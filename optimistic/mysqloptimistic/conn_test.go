package mysqloptimistic_test

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/mysqloptimistic"
)

// TestColumnsOnAConnection: a write that changes nothing is distinct from one that finds nothing,
// within a transaction and without one, and ends no transaction of the caller's.
func TestColumnsOnAConnection(t *testing.T) {
	t.Parallel()
	pool, ctx := testdb.MySQL(t), t.Context()
	for _, text := range []string{
		"CREATE TABLE audit (n BIGINT AUTO_INCREMENT PRIMARY KEY, what TEXT)",
		"CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL)",
		"CREATE TRIGGER noted AFTER UPDATE ON account FOR EACH ROW INSERT INTO audit (what) VALUES ('update')",
		"INSERT INTO account VALUES (1, 5)",
	} {
		if _, err := pool.ExecContext(ctx, text); err != nil {
			t.Fatal(err)
		}
	}
	table, err := mysqloptimistic.NewTable("account", "id", optimistic.Columns("balance"))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pool.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	try := func(when string) {
		t.Helper()
		if _, err := table.Update(ctx, conn, 1, optimistic.Values{"balance": 5}, optimistic.Set{"balance": 5}); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		_, err := table.Update(ctx, conn, 1, optimistic.Values{"balance": 4}, optimistic.Set{"balance": 5})
		if !errors.Is(err, optimistic.ErrStale) {
			t.Errorf("%s: a stale write: %v, want a conflict", when, err)
		}
	}
	try("outside of a transaction")
	for _, text := range []string{"BEGIN", "INSERT INTO account VALUES (2, 0)"} {
		if _, err := conn.ExecContext(ctx, text); err != nil {
			t.Fatal(err)
		}
	}
	try("in a transaction")
	if _, err := conn.ExecContext(ctx, "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := pool.QueryRowContext(ctx, "SELECT COUNT(*) FROM account").Scan(&n); err != nil || n != 1 {
		t.Errorf("there are %d rows after the rollback, want 1: %v", n, err)
	}
}

// TestNoTransactionStaysOpen: if the server refuses the commit of an update on a connection, the
// update fails, and the row is not locked any more.
func TestNoTransactionStaysOpen(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		if kind == devdb.Postgres {
			continue
		}
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			plain := testdb.MySQLOn(t, kind)
			for _, text := range []string{
				"CREATE TABLE audit (n BIGINT AUTO_INCREMENT PRIMARY KEY, what TEXT)",
				"CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL)",
				"CREATE TRIGGER noted AFTER UPDATE ON account FOR EACH ROW INSERT INTO audit (what) VALUES ('update')",
				"INSERT INTO account VALUES (1, 5)",
			} {
				if _, err := plain.ExecContext(t.Context(), text); err != nil {
					t.Fatal(err)
				}
			}
			var database string
			if err := plain.QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&database); err != nil {
				t.Fatal(err)
			}
			config, err := mysql.ParseDSN(testdb.DSN(t, kind))
			if err != nil {
				t.Fatal(err)
			}
			proxy, err := faultconn.ProxyMySQL(config.Addr)
			if err != nil {
				t.Fatal(err)
			}
			defer proxy.Close()
			config.Addr, config.DBName = proxy.Addr(), database
			config.Params = map[string]string{"innodb_lock_wait_timeout": "2"}
			pool, err := sql.Open("mysql", config.FormatDSN())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = pool.Close() }()
			conn, err := pool.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			table, err := mysqloptimistic.NewTable("account", "id", optimistic.Columns("balance"))
			if err != nil {
				t.Fatal(err)
			}
			same := func() error { // it is distinct from a stale one in a transaction
				_, err := table.Update(t.Context(), conn, 1, optimistic.Values{"balance": 5}, optimistic.Set{"balance": 5})
				return err
			}
			if err := same(); err != nil {
				t.Fatal(err)
			}
			proxy.Next("COMMIT", faultconn.Answer{Code: "1290", State: "HY000", StaysOpen: true})
			if err := same(); err == nil {
				t.Error("an update whose commit was refused is acknowledged")
			}
			if _, err := pool.ExecContext(t.Context(), "UPDATE account SET balance = 6"); err != nil {
				t.Errorf("the row stays locked: %v", err)
			}
		})
	}
}
