package mysqloptimistic_test

import (
	"context"
	"database/sql"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	optimisticsuite "github.com/dblock-go/dblock/internal/conformance/optimistic"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/mysqloptimistic"
)

// tableTx is a transaction that a Table may write in.
type tableTx = optimisticsuite.OptTx[mysqloptimistic.DB]

func tables(kind devdb.Kind) optimisticsuite.OptTables[mysqloptimistic.DB] {
	return optimisticsuite.OptTables[mysqloptimistic.DB]{
		Kind: kind, Open: openTables, Counted: countedDB,
		Int: mysqloptimistic.NewTable[int64], Time: mysqloptimistic.NewTable[time.Time], UUID: mysqloptimistic.NewTable[[16]byte],
		Values: mysqloptimistic.NewTable[optimistic.Values],
	}
}

func openTables(dsn string, dialer *faultconn.Dialer, conns int) (
	mysqloptimistic.DB, func(context.Context, sql.IsolationLevel) (tableTx, error), func(), error,
) {
	pool, err := openOn(dsn, dialer)
	if err != nil {
		return nil, nil, nil, err
	}
	pool.SetMaxOpenConns(conns)
	pool.SetMaxIdleConns(conns)
	return pool, func(ctx context.Context, level sql.IsolationLevel) (tableTx, error) {
		begun, err := pool.BeginTx(ctx, &sql.TxOptions{Isolation: level})
		if err != nil {
			return tableTx{}, err
		}
		return tableTx{DB: begun, Commit: begun.Commit, Rollback: begun.Rollback}, nil
	}, func() { _ = pool.Close() }, nil
}

// counted counts the statements of a transaction.
type counted struct {
	*sql.Tx
	n atomic.Int64
}

func countedDB(on mysqloptimistic.DB) (mysqloptimistic.DB, func() int64) {
	c := &counted{Tx: on.(*sql.Tx)}
	return c, c.n.Load
}

func (c *counted) ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error) {
	c.n.Add(1)
	return c.Tx.ExecContext(ctx, text, args...)
}

func (c *counted) QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	c.n.Add(1)
	return c.Tx.QueryContext(ctx, text, args...)
}

func (c *counted) QueryRowContext(ctx context.Context, text string, args ...any) *sql.Row {
	c.n.Add(1)
	return c.Tx.QueryRowContext(ctx, text, args...)
}

func TestTables(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			tables(kind).Run(t)
		})
	}
}

func TestTablesFaults(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			tables(kind).RunFaults(t)
		})
	}
}

func TestTablesSettings(t *testing.T) {
	t.Parallel()
	set := func(variable, value string) func(*testing.T, string) string {
		return suite.Appended(variable + "=" + url.QueryEscape("'"+value+"'"))
	}
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			isolation := "transaction_isolation"
			if kind == devdb.MariaDB {
				isolation = "tx_isolation"
			}
			settings := map[string]func(*testing.T, string) string{
				"parseTime":         suite.Appended("parseTime=true&loc=Asia%2FKolkata"),
				"clientFoundRows":   suite.Appended("clientFoundRows=true"),
				"interpolateParams": suite.Appended("interpolateParams=true"),
				"sql_mode":          set("sql_mode", "ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,STRICT_ALL_TABLES"),
				"no sql_mode":       set("sql_mode", ""),
				"time zone":         set("time_zone", "+05:30"),
				"latin1":            suite.Appended("collation=latin1_swedish_ci"),
				"repeatable read":   set(isolation, "REPEATABLE-READ"),
				"serializable":      set(isolation, "SERIALIZABLE"),
			}
			if kind == devdb.MariaDB {
				settings["snapshot isolation"] = suite.Appended("innodb_snapshot_isolation=ON")
			}
			tables(kind).RunWith(t, settings)
		})
	}
}
