package testdb

import (
	"context"
	"database/sql"
	"testing"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/migrations"
)

// TestMigratedIsWhatUpMakes compares a copy with a database that Up has migrated itself.
func TestMigratedIsWhatUpMakes(t *testing.T) {
	t.Parallel()
	for _, kind := range Engines() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			made := openFor(t, kind, DSN(t, kind))
			if applied, err := migrations.Up(t.Context(), made, migrations.Options{}); err != nil || len(applied) == 0 {
				t.Fatalf("%d were applied, %v", len(applied), err)
			}
			for range 2 {
				copied := openFor(t, kind, Migrated(t, kind))
				if applied, err := migrations.Up(t.Context(), copied, migrations.Options{}); err != nil || len(applied) != 0 {
					t.Errorf("a copy still needs %v, %v", applied, err)
				}
				want, got := definition(t, kind, made), definition(t, kind, copied)
				if want == "" || want != got {
					t.Errorf("a copy has\n%s\ninstead of\n%s", got, want)
				}
			}
		})
	}
}

func openFor(t *testing.T, kind devdb.Kind, dsn string) *sql.DB {
	t.Helper()
	db, err := openPlain(kind, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// definition is the text of all tables, columns, indexes and constraints, and the versions.
func definition(t *testing.T, kind devdb.Kind, db *sql.DB) (text string) {
	t.Helper()
	if kind != devdb.Postgres {
		tables, err := tablesOf(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range tables {
			var name, create string
			if err := db.QueryRowContext(t.Context(), "SHOW CREATE TABLE "+table).Scan(&name, &create); err != nil {
				t.Fatal(err)
			}
			text += create + "\n"
		}
		return text + oneText(t.Context(), t, db,
			"SELECT group_concat(version_id, is_applied ORDER BY id) FROM dblock_schema_version")
	}
	return oneText(t.Context(), t, db, `
		SELECT string_agg(line, E'\n' ORDER BY line) FROM (
			SELECT table_name || '.' || column_name || ' ' || data_type || coalesce(column_default, '') || is_nullable AS line
			FROM information_schema.columns WHERE table_schema = 'public'
			UNION ALL SELECT indexdef FROM pg_catalog.pg_indexes WHERE schemaname = 'public'
			UNION ALL SELECT conname || pg_catalog.pg_get_constraintdef(oid) FROM pg_catalog.pg_constraint
			WHERE connamespace = 'public'::regnamespace
			UNION ALL SELECT version_id::text || is_applied FROM dblock_schema_version) l`)
}

func oneText(ctx context.Context, t *testing.T, db *sql.DB, query string) (text string) {
	t.Helper()
	if err := db.QueryRowContext(ctx, query).Scan(&text); err != nil {
		t.Fatal(err)
	}
	return text
}
