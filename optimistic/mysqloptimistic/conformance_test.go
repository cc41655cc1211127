package mysqloptimistic_test

import (
	"context"
	"database/sql"
	"slices"
	"testing"

	"github.com/go-sql-driver/mysql"

	optimisticsuite "github.com/dblock-go/dblock/internal/conformance/optimistic"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/mysqloptimistic"
)

func TestOptimistic(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		settings := map[string]string{
			"clientFoundRows":   "clientFoundRows=true",
			"interpolateParams": "interpolateParams=true",
			"lax":               "sql_mode=%27%27",
			"ANSI":              "sql_mode=%27ANSI_QUOTES,NO_BACKSLASH_ESCAPES%27",
		}
		isolation := "transaction_isolation"
		if kind == devdb.MariaDB {
			isolation = "tx_isolation"
			settings["snapshot isolation"] = "innodb_snapshot_isolation=ON"
			settings["snapshot isolation, found rows"] = "innodb_snapshot_isolation=ON&clientFoundRows=true"
		}
		settings["repeatable read"] = isolation + "=%27REPEATABLE-READ%27"
		settings["read committed"] = isolation + "=%27READ-COMMITTED%27"
		settings["serializable"] = isolation + "=%27SERIALIZABLE%27"
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			optimisticsuite.Optimistic{Kind: kind, Open: open, Settings: settings}.Run(t)
		})
	}
}

func TestOptimisticFaults(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			optimisticsuite.Optimistic{Kind: kind, Open: open}.RunFaults(t)
		})
	}
}

// family is the servers under test that speak MySQL's protocol: usually one.
func family() []devdb.Kind {
	return slices.DeleteFunc(slices.Clone(testdb.Engines()), func(k devdb.Kind) bool { return k == devdb.Postgres })
}

func open(_ context.Context, dsn string, dialer *faultconn.Dialer, conns int) (p optimisticsuite.OptimisticPool, err error) {
	db, err := openOn(dsn, dialer)
	if err != nil {
		return p, err
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	p.Accounts, p.Close = accounts(db), func() { _ = db.Close() }
	p.InTx = func(ctx context.Context, isolation sql.IsolationLevel, fn func(optimisticsuite.Accounts) error) error {
		tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: isolation})
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := fn(accounts(tx)); err != nil {
			return err
		}
		return tx.Commit()
	}
	p.Do = func(ctx context.Context, fn func(optimisticsuite.Accounts, int) error, opts ...optimistic.Option) error {
		return mysqloptimistic.Do(ctx, db, func(_ context.Context, tx *sql.Tx, attempt int) error { return fn(accounts(tx), attempt) }, opts...)
	}
	p.Escalate = func(n int, id int64) optimistic.Option {
		return mysqloptimistic.LockRowAfter(n, "account", "id", id)
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

// save is what sqlc makes of :execresult. The version is the next one, as the row can have had no other.
func save(ctx context.Context, db mysqloptimistic.DB, a optimisticsuite.Account, blind bool) (optimisticsuite.Account, error) {
	query := "UPDATE account SET balance = ?, version = version + 1 WHERE id = ? AND (version = ? OR ?)"
	result, err := db.ExecContext(ctx, query, a.Balance, a.ID, a.Version, blind)
	if err := optimistic.Result(result, err, a.ExpectedOf()); err != nil {
		return optimisticsuite.Account{}, err
	}
	a.Version++
	return a, nil
}
