package migrations_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pressly/goose/v3"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/migrations"
)

func TestUp(t *testing.T) {
	each(t, func(e env) {
		var log bytes.Buffer
		list := e.up(migrations.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if len(list) != int(schema.Version) || list[0].Version != 1 || list[0].Name != "00001_inventory.sql" || list[0].Took <= 0 {
			t.Errorf("Up returned %+v", list)
		}
		if got := strings.Count(log.String(), "dblock: migrated"); got != len(list) {
			t.Errorf("%d migrations were logged, want %d: %s", got, len(list), &log)
		}
		e.wantTables("", all())
		e.wantVersions(schema.VersionTable, everyVersion())
		e.wantApplied(migrations.Options{})
	})
}

// panics is a log's handler that panics.
type panics struct{ slog.Handler }

func (panics) Enabled(context.Context, slog.Level) bool { return true }

func (panics) Handle(context.Context, slog.Record) error { panic("a log's handler") }

func TestUpWithAPanickingLogger(t *testing.T) {
	each(t, func(e env) {
		e.up(migrations.Options{Logger: slog.New(panics{})})
		e.wantTables("", all())
		e.wantApplied(migrations.Options{})
	})
}

func TestUpIntoASchema(t *testing.T) {
	each(t, func(e env) {
		opts := migrations.Options{Schema: e.freshSchema()}
		e.up(opts)
		e.wantTables(opts.Schema, all())
		e.wantTables("", nil)
		e.wantApplied(opts)

		// Two schemas are two sets of tables.
		e.up(migrations.Options{})
		e.wantTables("", all())
		_, err := migrations.DownTo(t.Context(), e.db, 0, opts)
		e.must(err)
		e.wantTables(opts.Schema, []string{schema.VersionTable})
		e.wantTables("", all())
	})
}

func TestDown(t *testing.T) {
	each(t, func(e env) {
		if list, err := migrations.Down(t.Context(), e.db, migrations.Options{}); err != nil || len(list) > 0 {
			t.Errorf("Down on an empty database: %v, %v", list, err)
		}
		for range 2 {
			e.up(migrations.Options{})
			for version := schema.Version; version > 0; version-- {
				list, err := migrations.Down(t.Context(), e.db, migrations.Options{})
				if err != nil || len(list) != 1 || list[0].Version != version {
					t.Fatalf("Down undid %v, %v; want version %d", list, err, version)
				}
			}
			e.wantTables("", []string{schema.VersionTable})
			if list, err := migrations.Down(t.Context(), e.db, migrations.Options{}); err != nil || len(list) > 0 {
				t.Errorf("Down with nothing left: %v, %v", list, err)
			}
		}
	})
}

func TestStatusWritesNothing(t *testing.T) {
	each(t, func(e env) {
		list := e.status(migrations.Options{})
		if len(list) != int(schema.Version) || list[0].Applied || list[0].Name == "" {
			t.Errorf("Status of an empty database: %+v", list)
		}
		e.wantTables("", nil)
	})
}

// A pool of one connection must do: the lock and the work share it.
func TestOneConnectionIsEnough(t *testing.T) {
	each(t, func(e env) {
		e.db.SetMaxOpenConns(1)
		e.up(migrations.Options{})
		_, err := migrations.DownTo(t.Context(), e.db, 0, migrations.Options{})
		e.must(err)
		e.must(e.db.PingContext(t.Context())) // and it stays the host's
	})
}

func TestPgxPool(t *testing.T) {
	t.Parallel()
	if !hasPostgres() {
		return // TestUp and its like cover what is under test
	}
	config, err := devdb.ParsePostgres(testdb.PostgresURL(t))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if list, err := migrations.Up(t.Context(), pool, migrations.Options{}); err != nil || len(list) != int(schema.Version) {
		t.Fatalf("Up: %v, %v", list, err)
	}
	if list, err := migrations.Status(t.Context(), pool, migrations.Options{}); err != nil || !list[0].Applied {
		t.Errorf("Status: %v, %v", list, err)
	}
	if _, err := migrations.DownTo(t.Context(), pool, 0, migrations.Options{}); err != nil {
		t.Errorf("DownTo: %v", err)
	}
	if err := pool.Ping(t.Context()); err != nil {
		t.Errorf("the host's pool: %v", err)
	}
}

// The host may use goose itself, with the default table.
func TestHostsGooseIsUntouched(t *testing.T) {
	each(t, func(e env) {
		dialect := goose.DialectMySQL
		if e.engine == migrations.Postgres {
			dialect = goose.DialectPostgres
		}
		host, err := goose.NewProvider(dialect, e.db, fstest.MapFS{
			"00007_host.sql": {Data: []byte("-- +goose Up\nCREATE TABLE host_table (id int);\n-- +goose Down\nDROP TABLE host_table;\n")},
		})
		e.must(err)
		_, err = host.Up(t.Context())
		e.must(err)
		e.up(migrations.Options{})
		e.wantVersions("goose_db_version", map[int64]int{0: 1, 7: 1})
		_, err = migrations.DownTo(t.Context(), e.db, 0, migrations.Options{})
		e.must(err)
		e.wantTables("", []string{schema.VersionTable, "goose_db_version", "host_table"})
		e.wantVersions("goose_db_version", map[int64]int{0: 1, 7: 1})
	})
}

func TestNewerTablesAreLeftAlone(t *testing.T) {
	each(t, func(e env) {
		e.up(migrations.Options{})
		newer := int64(99)
		e.exec("INSERT INTO dblock_schema_version (version_id, is_applied) VALUES (99, true)")
		before := e.versions(schema.VersionTable)
		for name, try := range map[string]func() ([]migrations.Applied, error){
			"Up":   func() ([]migrations.Applied, error) { return migrations.Up(t.Context(), e.db, migrations.Options{}) },
			"Down": func() ([]migrations.Applied, error) { return migrations.Down(t.Context(), e.db, migrations.Options{}) },
			"DownTo": func() ([]migrations.Applied, error) {
				return migrations.DownTo(t.Context(), e.db, 0, migrations.Options{})
			},
		} {
			_, err := try()
			var mismatch *dblock.SchemaError
			if !errors.As(err, &mismatch) || mismatch.Have != newer || mismatch.Want != schema.Version {
				t.Errorf("%s: %v, want a *SchemaError from %d to %d", name, err, newer, schema.Version)
			}
		}
		e.wantTables("", all())
		e.wantVersions(schema.VersionTable, before)
		list := e.status(migrations.Options{})
		if last := list[len(list)-1]; last.Version != newer || last.Name != "" || !last.Applied {
			t.Errorf("Status shows the unknown migration as %+v", last)
		}
	})
}

// On MySQL a process can die between any two statements; what is there then must not be in the way.
func TestFaultsUpCompletesWhatWasCutOff(t *testing.T) {
	each(t, func(e env) {
		e.up(migrations.Options{})
		e.exec("DELETE FROM dblock_schema_version")
		if e.engine == migrations.Postgres {
			// Here the tables and the record of them come and go together.
			for _, table := range schema.Tables() {
				e.exec("DROP TABLE " + table)
			}
		} else {
			e.exec("DROP TABLE dblock_adjustment")
		}
		e.up(migrations.Options{})
		e.wantTables("", all())
		e.wantVersions(schema.VersionTable, everyVersion())
	})
}

func TestBusy(t *testing.T) {
	each(t, func(e env) {
		holder, err := e.db.Conn(t.Context())
		e.must(err)
		defer func() { _ = holder.Close() }()
		l := migrations.Locker(e.engine, e.in(""))
		e.must(l.SessionLock(t.Context(), holder))
		_, err = migrations.Up(t.Context(), e.db, migrations.Options{LockTimeout: 50 * time.Millisecond})
		if !errors.Is(err, dblock.ErrBusy) || !strings.Contains(err.Error(), "another process is migrating") {
			t.Errorf("got %v, want ErrBusy", err)
		}
		e.wantTables("", nil)
		// The control: another schema has another lock.
		e.up(migrations.Options{Schema: e.freshSchema(), LockTimeout: time.Minute})
		e.must(l.SessionUnlock(t.Context(), holder))
		e.up(migrations.Options{})
	})
}

func TestCancelled(t *testing.T) {
	each(t, func(e env) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := migrations.Up(ctx, e.db, migrations.Options{}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
		e.wantTables("", nil)
	})
}

func TestBadArguments(t *testing.T) {
	each(t, func(e env) {
		for _, name := range []string{"a.b", ".", " ", "a\x00b", strings.Repeat("x", 65)} {
			if _, err := migrations.Up(t.Context(), e.db, migrations.Options{Schema: name}); err == nil {
				t.Errorf("schema %q was accepted", name)
			}
		}
		if _, err := migrations.Up(t.Context(), e.db, migrations.Options{LockTimeout: -1}); err == nil {
			t.Error("a negative LockTimeout was accepted")
		}
		if _, err := migrations.DownTo(t.Context(), e.db, -1, migrations.Options{}); err == nil {
			t.Error("a negative version was accepted")
		}
		if _, err := migrations.Up(t.Context(), (*sql.DB)(nil), migrations.Options{}); err == nil {
			t.Error("a nil *sql.DB was accepted")
		}
		if _, err := migrations.Up(t.Context(), (*pgxpool.Pool)(nil), migrations.Options{}); err == nil {
			t.Error("a nil *pgxpool.Pool was accepted")
		}
		e.wantTables("", nil)
	})
}

func TestDatabaseThatIsNotThere(t *testing.T) {
	each(t, func(e env) {
		if e.engine == migrations.Postgres {
			// Up creates a schema, Status does not.
			e.status(migrations.Options{Schema: "nowhere"})
			e.wantTables("nowhere", nil)
			return
		}
		_, err := migrations.Up(t.Context(), e.db, migrations.Options{Schema: "nowhere_to_be_found"})
		if err == nil || !strings.Contains(err.Error(), "nowhere_to_be_found") {
			t.Errorf("got %v, want an error that names the database", err)
		}
	})
}
