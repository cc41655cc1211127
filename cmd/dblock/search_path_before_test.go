package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/doctor"
	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/pginventory"
	"github.com/dblock-go/dblock/migrations"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/pgoptimistic"
	"github.com/dblock-go/dblock/pglock"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/pgqueue"
)

// TestNothingPlantedBeforePgCatalogRuns: the search_path has pg_catalog after a schema in which
// another role has planted operators, functions and types, exact matches too. A superuser runs
// every command, constructors refuse the path, and none of the planted functions runs.
func TestNothingPlantedBeforePgCatalogRuns(t *testing.T) {
	t.Parallel()
	if !slices.Contains(testdb.Engines(), devdb.Postgres) {
		return
	}
	url := testdb.PostgresURL(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	operators, functions := testdb.PlantBefore(t, conn, goText(t))
	t.Logf("planted %d operators and %d functions", operators, functions)
	const before = "SET search_path = public, pg_catalog, app"
	for _, statement := range []string{"ALTER DATABASE " + schema.QuotePostgres(conn.Config().Database) + " " + before, before} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	for name, control := range map[string]string{
		"operator": "SELECT 1 = 1", "function": "SELECT version()", "type": "SELECT 'a'::text",
	} {
		if _, err := conn.Exec(t.Context(), control, pgx.QueryExecModeSimpleProtocol); err == nil || !strings.Contains(err.Error(), "planted") {
			t.Fatalf("control %s: %v, want a planted function to run", name, err)
		}
	}
	commandsRunNothingPlanted(t, url+"&target_session_attrs=primary")
	invoke(t, "", "migrate", "up", "--schema=app", "--database="+url).want(t, 0, "")
	wantFinding(t, diagnose(t, "--schema=app", "--database="+url), "search_path", doctor.Problem, "search_path = public, pg_catalog, app")
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	for _, home := range []string{"app", ""} {
		for name, refuse := range constructors {
			if err := refuse(t.Context(), pool, home); !errors.Is(err, dblock.ErrUnsupported) || errors.Is(err, dblock.ErrUnavailable) ||
				!strings.Contains(err.Error(), "search_path") {
				t.Errorf("%s in schema %q: %v, want ErrUnsupported that names search_path", name, home, err)
			}
		}
	}
}

// constructors are what looks at a database before it is used, and what runs in transactions of the
// host's.
var constructors = map[string]func(ctx context.Context, pool *pgxpool.Pool, schema string) error{
	"NewLeaseLocker": func(ctx context.Context, pool *pgxpool.Pool, schema string) error {
		_, err := pglock.NewLeaseLocker(ctx, pool, pglock.LeaseOptions{Schema: schema})
		return err
	},
	"NewSessionLocker": func(ctx context.Context, pool *pgxpool.Pool, schema string) error {
		_, err := pglock.NewSessionLocker(ctx, pool, pglock.SessionOptions{Schema: schema})
		return err
	},
	"SessionLocks": func(ctx context.Context, pool *pgxpool.Pool, schema string) error {
		_, err := pglock.SessionLocks(ctx, pool, schema)
		return err
	},
	"queue": func(ctx context.Context, pool *pgxpool.Pool, schema string) error {
		_, err := pgqueue.New(ctx, pool, queue.Options{Schema: schema})
		return err
	},
	"inventory": func(ctx context.Context, pool *pgxpool.Pool, schema string) error {
		_, err := pginventory.New(ctx, pool, inventory.Options{Schema: schema})
		return err
	},
	"Up": func(ctx context.Context, pool *pgxpool.Pool, schema string) error {
		_, err := migrations.Up(ctx, pool, migrations.Options{Schema: schema})
		return err
	},
	"Down": func(ctx context.Context, pool *pgxpool.Pool, schema string) error {
		_, err := migrations.Down(ctx, pool, migrations.Options{Schema: schema})
		return err
	},
	"Status": func(ctx context.Context, pool *pgxpool.Pool, schema string) error {
		_, err := migrations.Status(ctx, pool, migrations.Options{Schema: schema})
		return err
	},
	"MigrationLocker": func(ctx context.Context, pool *pgxpool.Pool, _ string) error {
		locker, err := pglock.NewMigrationLocker(pglock.MigrationOptions{Name: "shop"})
		if err != nil {
			return err
		}
		db := stdlib.OpenDBFromPool(pool)
		defer func() { _ = db.Close() }()
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		return locker.SessionLock(ctx, conn)
	},
	"LockTx": func(ctx context.Context, pool *pgxpool.Pool, _ string) error {
		return pglock.RunTx(ctx, pool, pglock.TxOptions{}, func(tx pgx.Tx) error { return pglock.LockTx(ctx, tx, dblock.NoWait(), 1) })
	},
	"LockRow": func(ctx context.Context, pool *pgxpool.Pool, _ string) error {
		return pglock.RunTx(ctx, pool, pglock.TxOptions{}, func(tx pgx.Tx) error {
			return pglock.LockRow(ctx, tx, "app.dblock_stock", "sku", "lamp", dblock.RowLock{})
		})
	},
	"optimistic": func(ctx context.Context, pool *pgxpool.Pool, _ string) error {
		table, err := pgoptimistic.NewTable("app.dblock_stock", "sku", optimistic.Int("available"))
		if err != nil {
			return err
		}
		_, err = table.Version(ctx, pool, "lamp")
		return err
	},
	"Guard": func(ctx context.Context, pool *pgxpool.Pool, schema string) error {
		return pglock.RunTx(ctx, pool, pglock.TxOptions{}, func(tx pgx.Tx) error {
			return pglock.Guards{Schema: schema}.Guard(ctx, tx, dblock.Fence{Key: "k"})
		})
	},
}
