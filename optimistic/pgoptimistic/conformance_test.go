package pgoptimistic_test

import (
	"context"
	"database/sql"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	optimisticsuite "github.com/dblock-go/dblock/internal/conformance/optimistic"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/pgoptimistic"
)

var driver = optimisticsuite.Driver[pgoptimistic.DB]{
	Kind: devdb.Postgres, Open: open, On: accounts, Counted: countedDB,
	Escalate: func(n int, id int64) optimistic.Option { return pgoptimistic.LockRowAfter(n, "account", "id", id) },
	Int:      pgoptimistic.NewTable[int64], Time: pgoptimistic.NewTable[time.Time], UUID: pgoptimistic.NewTable[[16]byte],
	Values: pgoptimistic.NewTable[optimistic.Values],
}

func TestOptimistic(t *testing.T) {
	t.Parallel()
	driver.Run(t)
}

func TestOptimisticFaults(t *testing.T) {
	t.Parallel()
	driver.RunFaults(t)
}

func TestOptimisticSettings(t *testing.T) {
	t.Parallel()
	driver.RunWith(t, map[string]func(*testing.T, string) string{
		"exec":            suite.Appended("default_query_exec_mode=exec"),
		"cache_describe":  suite.Appended("default_query_exec_mode=cache_describe"),
		"repeatable read": suite.Appended("default_transaction_isolation=repeatable%20read"),
		"serializable":    suite.Appended("default_transaction_isolation=serializable"),
		"zone and style":  suite.Appended("timezone=Asia/Kolkata&datestyle=German"),
	})
	driver.RunUpdatesWith(t, map[string]func(*testing.T, string) string{
		"simple protocol": suite.Appended("default_query_exec_mode=simple_protocol"),
	})
}

func open(dsn string, dialer *faultconn.Dialer, conns int) (p optimisticsuite.Pool[pgoptimistic.DB], err error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return p, err
	}
	cfg.ConnConfig.DialFunc, cfg.MaxConns = dialer.DialContext, int32(conns)
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		return p, err
	}
	levels := map[sql.IsolationLevel]pgx.TxIsoLevel{
		sql.LevelReadCommitted: pgx.ReadCommitted, sql.LevelRepeatableRead: pgx.RepeatableRead, sql.LevelSerializable: pgx.Serializable,
	}
	p.DB, p.Close = pool, pool.Close
	p.Begin = func(ctx context.Context, level sql.IsolationLevel) (tx optimisticsuite.PoolTx[pgoptimistic.DB], err error) {
		begun, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: levels[level]})
		if err != nil {
			return tx, err
		}
		tx.DB, tx.Commit = begun, func() error { return begun.Commit(context.Background()) }
		tx.Rollback = func() error { return begun.Rollback(context.Background()) }
		return tx, nil
	}
	p.Do = func(ctx context.Context, fn func(pgoptimistic.DB, int) error, opts ...optimistic.Option) error {
		return pgoptimistic.Do(ctx, pool, func(_ context.Context, tx pgx.Tx, attempt int) error { return fn(tx, attempt) }, opts...)
	}
	return p, nil
}

func accounts(db pgoptimistic.DB) (a optimisticsuite.Accounts) {
	a.Update = func(ctx context.Context, c optimisticsuite.Change, opts ...optimistic.Option) (optimisticsuite.Account, error) {
		return pgoptimistic.Update(ctx, db,
			func(ctx context.Context, db pgoptimistic.DB) (optimisticsuite.Account, error) {
				return load(ctx, db, c.ID)
			}, c.Mutate,
			func(ctx context.Context, db pgoptimistic.DB, a optimisticsuite.Account) (optimisticsuite.Account, error) {
				return save(ctx, db, a, c.Blind)
			}, opts...)
	}
	a.Load = func(ctx context.Context, id int64) (optimisticsuite.Account, error) { return load(ctx, db, id) }
	a.Save = func(ctx context.Context, a optimisticsuite.Account, blind bool) (optimisticsuite.Account, error) {
		return save(ctx, db, a, blind)
	}
	return a
}

func load(ctx context.Context, db pgoptimistic.DB, id int64) (a optimisticsuite.Account, err error) {
	row := db.QueryRow(ctx, "SELECT id, balance, version FROM account WHERE id = $1", id)
	return a, row.Scan(&a.ID, &a.Balance, &a.Version)
}

// save is what sqlc makes of :one with RETURNING.
func save(ctx context.Context, db pgoptimistic.DB, a optimisticsuite.Account, blind bool) (optimisticsuite.Account, error) {
	query := "UPDATE account SET balance = $2, version = version + 1 WHERE id = $1 AND (version = $3 OR $4) RETURNING id, balance, version"
	var saved optimisticsuite.Account
	err := db.QueryRow(ctx, query, a.ID, a.Balance, a.Version, blind).Scan(&saved.ID, &saved.Balance, &saved.Version)
	return optimistic.One(saved, err, a.ExpectedOf())
}

// counted counts statements.
type counted struct {
	pgoptimistic.DB
	n atomic.Int64
}

func countedDB(on pgoptimistic.DB) (pgoptimistic.DB, func() int64) {
	c := &counted{DB: on}
	return c, c.n.Load
}

func (c *counted) Exec(ctx context.Context, text string, args ...any) (pgconn.CommandTag, error) {
	c.n.Add(1)
	return c.DB.Exec(ctx, text, args...)
}

func (c *counted) Query(ctx context.Context, text string, args ...any) (pgx.Rows, error) {
	c.n.Add(1)
	return c.DB.Query(ctx, text, args...)
}

func (c *counted) QueryRow(ctx context.Context, text string, args ...any) pgx.Row {
	c.n.Add(1)
	return c.DB.QueryRow(ctx, text, args...)
}
