package pgoptimistic_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/pgoptimistic"
)

// TestAWriteWithoutAConnectionIsBusy: no connection of the pool is free in time. Nothing was sent,
// and no write is called unknown.
func TestAWriteWithoutAConnectionIsBusy(t *testing.T) {
	t.Parallel()
	host := testdb.Postgres(t)
	if _, err := host.Exec(t.Context(), "CREATE TABLE account (id BIGINT PRIMARY KEY, n BIGINT, version BIGINT NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	cfg := host.Config()
	cfg.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	table, err := pgoptimistic.NewTable("account", "id", optimistic.Int("version"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := table.Upsert(t.Context(), pool, 1, optimistic.Absent[int64](), optimistic.Set{"n": 1}); err != nil {
		t.Fatal(err)
	}
	only, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer only.Release()
	set := optimistic.Set{"n": 2}
	for name, write := range map[string]func(context.Context) error{
		"Update": func(ctx context.Context) error { _, err := table.Update(ctx, pool, 1, 1, set); return err },
		"Any":    func(ctx context.Context) error { _, err := table.Any().Update(ctx, pool, 1, set); return err },
		"Upsert": func(ctx context.Context) error {
			_, err := table.Upsert(ctx, pool, 1, optimistic.At(int64(1)), set)
			return err
		},
		"Delete": func(ctx context.Context) error { return table.Delete(ctx, pool, 1, 1) },
		"UpdateMany": func(ctx context.Context) error {
			_, err := table.UpdateMany(ctx, pool, []optimistic.Change[int64]{{Key: 1, Expected: 1, Set: set}}, optimistic.UpdateEachRow)
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := write(ctx); !errors.Is(err, dblock.ErrBusy) || errors.Is(err, dblock.ErrOutcomeUnknown) {
			t.Errorf("%s: %v, want ErrBusy", name, err)
		}
		cancel()
	}
}

// TestTheLastVersionCanBeDeleted: there is no version after it, which a deletion does not need.
func TestTheLastVersionCanBeDeleted(t *testing.T) {
	t.Parallel()
	pool, ctx := testdb.Postgres(t), t.Context()
	for _, text := range []string{"CREATE TABLE small (id BIGINT PRIMARY KEY, version SMALLINT NOT NULL)", "INSERT INTO small VALUES (1, 32767)"} {
		if _, err := pool.Exec(ctx, text); err != nil {
			t.Fatal(err)
		}
	}
	table, err := pgoptimistic.NewTable("small", "id", optimistic.Int("version"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := table.Touch(ctx, pool, 1, 32767); !errors.Is(err, dblock.ErrInvalid) {
		t.Errorf("Touch: %v", err)
	}
	if err := table.Delete(ctx, pool, 1, 32767); err != nil {
		t.Errorf("Delete: %v", err)
	}
}
