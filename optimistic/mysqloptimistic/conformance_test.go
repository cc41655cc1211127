package mysqloptimistic_test

import (
	"context"
	"database/sql"
	"net/url"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	optimisticsuite "github.com/dblock-go/dblock/internal/conformance/optimistic"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/mysqloptimistic"
)

func driver(kind devdb.Kind) optimisticsuite.Driver[mysqloptimistic.DB] {
	return optimisticsuite.Driver[mysqloptimistic.DB]{
		Kind: kind, Open: open, On: accounts, Counted: countedDB,
		Escalate: func(n int, id int64) optimistic.Option { return mysqloptimistic.LockRowAfter(n, "account", "id", id) },
		Int:      mysqloptimistic.NewTable[int64], Time: mysqloptimistic.NewTable[time.Time], UUID: mysqloptimistic.NewTable[[16]byte],
		Values: mysqloptimistic.NewTable[optimistic.Values],
	}
}

// family is the servers under test that speak MySQL's protocol: usually one.
func family() []devdb.Kind {
	return slices.DeleteFunc(slices.Clone(testdb.Engines()), func(k devdb.Kind) bool { return k == devdb.Postgres })
}

// eachOfFamily runs a test for each of the family.
func eachOfFamily(t *testing.T, test func(*testing.T, devdb.Kind)) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			test(t, kind)
		})
	}
}

func TestOptimistic(t *testing.T) {
	eachOfFamily(t, func(t *testing.T, kind devdb.Kind) { driver(kind).Run(t) })
}

func TestOptimisticFaults(t *testing.T) {
	eachOfFamily(t, func(t *testing.T, kind devdb.Kind) { driver(kind).RunFaults(t) })
}

func TestOptimisticSettings(t *testing.T) {
	set := func(variable, value string) func(*testing.T, string) string {
		return suite.Appended(variable + "=" + url.QueryEscape("'"+value+"'"))
	}
	eachOfFamily(t, func(t *testing.T, kind devdb.Kind) {
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
		updates := map[string]func(*testing.T, string) string{"read committed": set(isolation, "READ-COMMITTED")}
		if kind == devdb.MariaDB {
			settings["snapshot isolation"] = suite.Appended("innodb_snapshot_isolation=ON")
			updates["snapshot isolation, found rows"] = suite.Appended("innodb_snapshot_isolation=ON&clientFoundRows=true")
		}
		driver(kind).RunWith(t, settings)
		driver(kind).RunUpdatesWith(t, updates)
	})
}

func open(dsn string, dialer *faultconn.Dialer, conns int) (p optimisticsuite.Pool[mysqloptimistic.DB], err error) {
	db, err := openOn(dsn, dialer)
	if err != nil {
		return p, err
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	p.DB, p.Close = db, func() { _ = db.Close() }
	p.Begin = func(ctx context.Context, level sql.IsolationLevel) (tx optimisticsuite.PoolTx[mysqloptimistic.DB], err error) {
		begun, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
		if err != nil {
			return tx, err
		}
		tx.DB, tx.Commit, tx.Rollback = begun, begun.Commit, begun.Rollback
		return tx, nil
	}
	p.Do = func(ctx context.Context, fn func(mysqloptimistic.DB, int) error, opts ...optimistic.Option) error {
		return mysqloptimistic.Do(ctx, db, func(_ context.Context, tx *sql.Tx, attempt int) error { return fn(tx, attempt) }, opts...)
	}
	return p, nil
}

// openOn makes a pool whose connections are the dialer's.
func openOn(dsn string, dialer *faultconn.Dialer) (*sql.DB, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	cfg.DialFunc, cfg.Logger = dialer.DialContext, &mysql.NopLogger{}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

func accounts(db mysqloptimistic.DB) (a optimisticsuite.Accounts) {
	a.Update = func(ctx context.Context, c optimisticsuite.Change, opts ...optimistic.Option) (optimisticsuite.Account, error) {
		return mysqloptimistic.Update(ctx, db,
			func(ctx context.Context, db mysqloptimistic.DB) (optimisticsuite.Account, error) {
				return load(ctx, db, c.ID)
			}, c.Mutate,
			func(ctx context.Context, db mysqloptimistic.DB, a optimisticsuite.Account) (optimisticsuite.Account, error) {
				return save(ctx, db, a, c.Blind)
			}, opts...)
	}
	a.Load = func(ctx context.Context, id int64) (optimisticsuite.Account, error) { return load(ctx, db, id) }
	a.Save = func(ctx context.Context, a optimisticsuite.Account, blind bool) (optimisticsuite.Account, error) {
		return save(ctx, db, a, blind)
	}
	return a
}

func load(ctx context.Context, db mysqloptimistic.DB, id int64) (a optimisticsuite.Account, err error) {
	row := db.QueryRowContext(ctx, "SELECT id, balance, version FROM account WHERE id = ?", id)
	return a, row.Scan(&a.ID, &a.Balance, &a.Version)
}

// save is what sqlc makes of :execresult. The version is the next one, as the row can have had no
// other.
func save(ctx context.Context, db mysqloptimistic.DB, a optimisticsuite.Account, blind bool) (optimisticsuite.Account, error) {
	query := "UPDATE account SET balance = ?, version = version + 1 WHERE id = ? AND (version = ? OR ?)"
	result, err := db.ExecContext(ctx, query, a.Balance, a.ID, a.Version, blind)
	if err := optimistic.Result(result, err, a.ExpectedOf()); err != nil {
		return optimisticsuite.Account{}, err
	}
	a.Version++
	return a, nil
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
