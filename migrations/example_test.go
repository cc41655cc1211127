package migrations_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/migrations"
)

// At start, every process of a service may do this: one of them migrates, the others wait for it.
func ExampleUp() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://app_migrator@localhost/app")
	if err != nil {
		slog.Error("database", "error", err)
		return
	}
	defer pool.Close()
	applied, err := migrations.Up(ctx, pool, migrations.Options{Schema: "locks", Logger: slog.Default()})
	if err != nil {
		slog.Error("migrate", "error", err)
		return
	}
	slog.Info("dblock's tables are up to date", "applied", len(applied))
}

// For teams that keep all migrations in one tool: the text needs no server to be made.
func ExampleSQL() {
	text, err := migrations.SQL(migrations.Postgres, migrations.Plain, "locks")
	if err != nil {
		fmt.Println(err)
		return
	}
	first, _, _ := strings.Cut(text, "\n")
	fmt.Println(first)
	// Output: CREATE SCHEMA IF NOT EXISTS "locks";
}

// Before a release goes back, the newer one undoes its last migration, with the data in it. DownTo
// with version 0 undoes all.
func ExampleDown() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://app_migrator@localhost/app")
	if err != nil {
		slog.Error("database", "error", err)
		return
	}
	defer pool.Close()
	undone, err := migrations.Down(ctx, pool, migrations.Options{Schema: "locks"})
	if err != nil {
		slog.Error("migrate", "error", err)
		return
	}
	for _, m := range undone {
		slog.Info("undone", "version", m.Version, "name", m.Name)
	}
}
