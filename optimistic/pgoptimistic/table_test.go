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

// tableTx is a transaction that a Table may write in.
type tableTx = optimisticsuite.OptTx[pgoptimistic.DB]

var tables = optimisticsuite.OptTables[pgoptimistic.DB]{
	Kind: devdb.Postgres, Open: openTables, Counted: countedDB,
	Int: pgoptimistic.NewTable[int64], Time: pgoptimistic.NewTable[time.Time], UUID: pgoptimistic.NewTable[[16]byte],
	Values: pgoptimistic.NewTable[optimistic.Values],
}

func openTables(dsn string, dialer *faultconn.Dialer, conns int) (
	pgoptimistic.DB, func(context.Context, sql.IsolationLevel) (tableTx, error), func(), error,
) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, nil, nil, err
	}
	cfg.ConnConfig.DialFunc, cfg.MaxConns = dialer.DialContext, int32(conns)
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		return nil, nil, nil, err
	}
	levels := map[sql.IsolationLevel]pgx.TxIsoLevel{
		sql.LevelReadCommitted: pgx.ReadCommitted, sql.LevelRepeatableRead: pgx.RepeatableRead, sql.LevelSerializable: pgx.Serializable,
	}
	return pool, func(ctx context.Context, level sql.IsolationLevel) (tableTx, error) {
		begun, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: levels[level]})
		if err != nil {
			return tableTx{}, err
		}
		return tableTx{
			DB: begun, Commit: func() error { return begun.Commit(context.Background()) },
			Rollback: func() error { return begun.Rollback(context.Background()) },
		}, nil
	}, pool.Close, nil
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

func TestTables(t *testing.T) {
	t.Parallel()
	tables.Run(t)
}

func TestTablesFaults(t *testing.T) {
	t.Parallel()
	tables.RunFaults(t)
}

func TestTablesSettings(t *testing.T) {
	t.Parallel()
	tables.RunWith(t, map[string]func(*testing.T, string) string{
		"exec":            suite.Appended("default_query_exec_mode=exec"),
		"cache_describe":  suite.Appended("default_query_exec_mode=cache_describe"),
		"repeatable read": suite.Appended("default_transaction_isolation=repeatable%20read"),
		"serializable":    suite.Appended("default_transaction_isolation=serializable"),
		"zone and style":  suite.Appended("timezone=Asia/Kolkata&datestyle=German"),
	})
}
