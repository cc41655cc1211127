package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/doctor"
	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/migrations"
	"github.com/dblock-go/dblock/pglock"
)

// TestTemporaryTablesShadowNothing: every session has a temporary table of the name of each of
// dblock's tables, and no Options name a schema. Migrations, doctor and all packages use dblock's
// tables: the temporary ones have none of their columns, so that a statement that names no schema
// fails, as the control does.
func TestTemporaryTablesShadowNothing(t *testing.T) {
	t.Parallel()
	if !slices.Contains(testdb.Engines(), devdb.Postgres) {
		return
	}
	config, err := pgxpool.ParseConfig(testdb.PostgresURL(t))
	if err != nil {
		t.Fatal(err)
	}
	var shadows strings.Builder
	for _, table := range append(schema.Tables(), schema.VersionTable) {
		fmt.Fprintf(&shadows, "CREATE TEMPORARY TABLE IF NOT EXISTS %s (shadow int);", table)
	}
	config.ConnConfig.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		_, err := conn.Exec(ctx, shadows.String()).ReadAll()
		return err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	for range 2 { // the second run finds the tables, and has nothing to do
		if _, err := migrations.Up(t.Context(), pool, migrations.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	for name, schemaName := range map[string]string{"named": "public", "found": ""} {
		t.Run(name, func(t *testing.T) {
			if status, err := migrations.Status(t.Context(), pool, migrations.Options{Schema: schemaName}); err != nil || !status[len(status)-1].Applied {
				t.Errorf("status %+v, %v", status, err)
			}
			leasesOf(t, pool, schemaName)
			queueOf(t, pool, schemaName)
			salesOf(t, pool, schemaName)
			advisoryLocks(t, pool, schemaName)
			sessionKeyIsShown(t, pool, schemaName)
		})
	}
	wantFinding(t, doctor.Postgres(t.Context(), config.ConnConfig, ""), "schema", doctor.OK, "")
	if _, err := pool.Exec(t.Context(), "SELECT lease_key FROM dblock_lease"); err == nil {
		t.Error("control: a statement without a schema passed, want it to meet the temporary table")
	}
}

// sessionKeyIsShown holds a session lock until its key is noted, which happens after a second.
func sessionKeyIsShown(t *testing.T, pool *pgxpool.Pool, schemaName string) {
	s, err := pglock.NewSessionLocker(t.Context(), pool, pglock.SessionOptions{Schema: schemaName})
	if err != nil {
		t.Fatal(err)
	}
	key := "shown, in " + schemaName
	lock, err := s.Acquire(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(lock.Release(context.Background()), s.Close(context.Background())); err != nil {
			t.Error(err)
		}
	}()
	for shown := false; !shown && t.Context().Err() == nil; {
		locks, err := pglock.SessionLocks(t.Context(), pool, schemaName)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range locks {
			shown = shown || l.Key == key
		}
	}
}
