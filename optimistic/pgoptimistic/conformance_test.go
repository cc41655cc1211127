package pgoptimistic_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	optimisticsuite "github.com/dblock-go/dblock/internal/conformance/optimistic"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/pgoptimistic"
)

func TestOptimistic(t *testing.T) {
	t.Parallel()
	optimisticsuite.Optimistic{Kind: devdb.Postgres, Open: open, Settings: map[string]string{
		"repeatable read": "default_transaction_isolation=repeatable%20read",
		"serializable":    "default_transaction_isolation=serializable",
		"simple protocol": "default_query_exec_mode=simple_protocol",
	}}.Run(t)
}

func TestOptimisticFaults(t *testing.T) {
	t.Parallel()
	optimisticsuite.Optimistic{Kind: devdb.Postgres, Open: open}.RunFaults(t)
}

func open(ctx context.Context, dsn string, dialer *faultconn.Dialer, conns int) (p optimisticsuite.OptimisticPool, err error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return p, err
	}
	cfg.ConnConfig.DialFunc, cfg.MaxConns = dialer.DialContext, int32(conns)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return p, err
	}
	levels := map[sql.IsolationLevel]pgx.TxIsoLevel{
		sql.LevelReadCommitted: pgx.ReadCommitted, sql.LevelRepeatableRead: pgx.RepeatableRead, sql.LevelSerializable: pgx.Serializable,
	}
	p.Accounts, p.Close = accounts(pool), pool.Close
	p.InTx = func(ctx context.Context, isolation sql.IsolationLevel, fn func(optimisticsuite.Accounts) error) error {
		return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: levels[isolation]}, func(tx pgx.Tx) error { return fn(accounts(tx)) })
	}
	p.Do = func(ctx context.Context, fn func(optimisticsuite.Accounts, int) error, opts ...optimistic.Option) error {
		return pgoptimistic.Do(ctx, pool, func(_ context.Context, tx pgx.Tx, attempt int) error { return fn(accounts(tx), attempt) }, opts...)
	}
	p.Escalate = func(n int, id int64) optimistic.Option {
		return pgoptimistic.LockRowAfter(n, "account", "id", id)
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
