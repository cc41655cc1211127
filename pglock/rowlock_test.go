package pglock_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/dblock-go/dblock"
	locksuite "github.com/dblock-go/dblock/internal/conformance/lock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/pglock"
)

// rows are the row locks through pgx, and rowsSQL the same through database/sql.
var (
	rows = locksuite.RowLocks{
		Kind: devdb.Postgres, Open: openRows, Bound: 50 * time.Millisecond, Between: 1500 * time.Microsecond,
	}
	rowsSQL = locksuite.RowLocks{
		Kind: devdb.Postgres, Open: openRowsSQL, Bound: 50 * time.Millisecond, Between: 1500 * time.Microsecond,
	}
)

func openRows(dsn string, conns int, level sql.IsolationLevel) (func(context.Context) (locksuite.RowTx, error), func(), error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, nil, err
	}
	cfg.MaxConns = int32(conns)
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context) (locksuite.RowTx, error) {
		o := pgx.TxOptions{AccessMode: pgx.ReadWrite}
		if level == sql.LevelReadCommitted {
			o.IsoLevel = pgx.ReadCommitted
		}
		tx, err := pool.BeginTx(ctx, o)
		return &rowTx{Tx: tx, commit: func(ctx context.Context) error { return tx.Commit(ctx) }}, err
	}, pool.Close, nil
}

func openRowsSQL(dsn string, conns int, level sql.IsolationLevel) (func(context.Context) (locksuite.RowTx, error), func(), error) {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return func(context.Context) (locksuite.RowTx, error) {
		tx, err := db.BeginTx(context.Background(), &sql.TxOptions{Isolation: level})
		return &rowTx{Tx: pglock.SQLTx(tx), commit: func(context.Context) error { return tx.Commit() }}, err
	}, func() { _ = db.Close() }, nil
}

type rowTx struct {
	pglock.Tx
	commit func(context.Context) error
}

func (t *rowTx) Exec(ctx context.Context, statement string) error {
	_, err := t.Tx.Exec(ctx, statement)
	return err
}

func (t *rowTx) Text(ctx context.Context, query string) (string, error) {
	rows, err := t.Query(ctx, query)
	if err != nil {
		return "", err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
}

func (t *rowTx) Commit(ctx context.Context) error { return t.commit(ctx) }

func (t *rowTx) LockRow(ctx context.Context, table, column string, key int64, o dblock.RowLock) error {
	return pglock.LockRow(ctx, t.Tx, table, column, key, o)
}

func (t *rowTx) LockText(ctx context.Context, table, column, key string, o dblock.RowLock) error {
	return pglock.LockRow(ctx, t.Tx, table, column, key, o)
}

func (t *rowTx) LockRows(ctx context.Context, table, column string, keys []int64, o dblock.RowLock) (dblock.LockedRows[int64], error) {
	return pglock.LockRows(ctx, t.Tx, table, column, keys, o)
}

func (t *rowTx) LockTexts(ctx context.Context, table, column string, keys []string, o dblock.RowLock) (dblock.LockedRows[string], error) {
	return pglock.LockRows(ctx, t.Tx, table, column, keys, o)
}

func (t *rowTx) LockTimes(ctx context.Context, table, column string, keys []time.Time, o dblock.RowLock) (dblock.LockedRows[time.Time], error) {
	return pglock.LockRows(ctx, t.Tx, table, column, keys, o)
}

func (t *rowTx) Claim(ctx context.Context, o dblock.RowLock, n int, query string) ([]int64, error) {
	return pglock.Claim(ctx, t.Tx, o, n, pgx.RowTo[int64], query)
}

func TestRowLocks(t *testing.T) {
	t.Parallel()
	rows.Run(t)
}

func TestRowLocksSQL(t *testing.T) {
	t.Parallel()
	rowsSQL.Run(t)
}

func TestRowLocksSettings(t *testing.T) {
	t.Parallel()
	rows.RunWith(t, map[string]func(*testing.T, string) string{
		"serializable":                  suite.Appended("default_transaction_isolation=serializable"),
		"read only":                     suite.Appended("default_transaction_read_only=on"),
		"simple protocol":               suite.Appended("default_query_exec_mode=simple_protocol"),
		"exec":                          suite.Appended("default_query_exec_mode=exec"),
		"describe exec":                 suite.Appended("default_query_exec_mode=describe_exec"),
		"cache describe":                suite.Appended("default_query_exec_mode=cache_describe"),
		"odd string style":              suite.Appended("standard_conforming_strings=off"),
		"PgBouncer in transaction mode": func(t *testing.T, dsn string) string { return testdb.Pooled(t, dsn) },
	})
}
