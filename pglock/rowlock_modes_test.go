package pglock_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/pglock"
)

type (
	modeID   [16]byte
	modeName string
)

// lockIn locks the row with a key, once for itself and once with another key.
func lockIn[K any](column string, key, other K) func(context.Context, pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		for range 2 { // the first call looks, the second need not
			if err := pglock.LockRow(ctx, tx, "kinds", column, key, dblock.RowLock{Wait: dblock.NoWait()}); err != nil {
				return err
			}
		}
		rows, err := pglock.LockRows(ctx, tx, "kinds", column, []K{other, key}, dblock.RowLock{Wait: dblock.SkipLocked()})
		if err == nil && len(rows.Locked) != 1 {
			err = pgx.ErrNoRows
		}
		return err
	}
}

// TestRowLocksTakeKeysOfEveryTypeInEveryMode: keys that pgx can't send by their Go type alone.
func TestRowLocksTakeKeysOfEveryTypeInEveryMode(t *testing.T) {
	t.Parallel()
	pool := testdb.Postgres(t)
	execute(t, pool, `CREATE TABLE kinds (u UUID UNIQUE, s TEXT UNIQUE, n BIGINT UNIQUE, at TIMESTAMP UNIQUE);
		INSERT INTO kinds VALUES ('07000000-0000-0000-0000-000000000000', 'seven', 7, '2026-01-07 12:00:00')`)
	at := time.Date(2026, 1, 7, 12, 0, 0, 0, time.FixedZone("east", 3600))
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeCacheStatement,
	} {
		config := pool.Config()
		config.ConnConfig.DefaultQueryExecMode = mode
		in, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(in.Close)
		for name, lock := range map[string]func(context.Context, pgx.Tx) error{
			"uuid":        lockIn("u", modeID{7}, modeID{8}),
			"string":      lockIn("s", "seven", "eight"),
			"named":       lockIn[modeName]("s", "seven", "eight"),
			"bytes":       lockIn("s", []byte("seven"), []byte("eight")),
			"int":         lockIn("n", 7, 8),
			"null":        lockIn("n", sql.NullInt64{Int64: 7, Valid: true}, sql.NullInt64{Int64: 8, Valid: true}),
			"uint8":       lockIn[uint8]("n", 7, 8),
			"any":         lockIn[any]("n", 7, 8),
			"time's zone": lockIn("at", at, at.Add(time.Hour)),
		} {
			if err := pgx.BeginFunc(t.Context(), in, func(tx pgx.Tx) error { return lock(t.Context(), tx) }); err != nil {
				t.Errorf("%v, %s: %v", mode, name, err)
			}
		}
	}
}
