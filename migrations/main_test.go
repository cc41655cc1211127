package migrations_test

import (
	"context"
	"database/sql"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/migrations"
)

func TestMain(m *testing.M) {
	if os.Getenv(envMigrant) != "" {
		os.Exit(migrant())
	}
	if os.Getenv(envRacer) != "" {
		os.Exit(racer())
	}
	testdb.Main(m)
}

// env is an empty database of a test's own.
type env struct {
	*testing.T
	kind   devdb.Kind
	engine migrations.Engine
	dsn    string
	db     *sql.DB
}

// each runs a test on every engine under test.
func each(t *testing.T, fn func(e env)) {
	t.Helper()
	t.Parallel()
	for _, kind := range testdb.Engines() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			e := env{T: t, kind: kind, engine: migrations.MySQL, dsn: testdb.DSN(t, kind)}
			if kind == devdb.Postgres {
				e.engine = migrations.Postgres
			}
			e.db = e.open(e.dsn)
			fn(e)
		})
	}
}

func (e env) open(dsn string) *sql.DB {
	e.Helper()
	db, err := openDB(e.engine, dsn)
	e.must(err)
	e.Cleanup(func() { _ = db.Close() })
	return db
}

func openDB(engine migrations.Engine, dsn string) (*sql.DB, error) {
	if engine == migrations.Postgres {
		config, err := devdb.ParsePostgres(dsn)
		if err != nil {
			return nil, err
		}
		return stdlib.OpenDB(*config.ConnConfig), nil
	}
	config, err := devdb.ParseMySQL(dsn)
	if err != nil {
		return nil, err
	}
	config.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

func (e env) must(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

func (e env) up(opts migrations.Options) []migrations.Applied {
	e.Helper()
	list, err := migrations.Up(e.Context(), e.db, opts)
	e.must(err)
	return list
}

func (e env) exec(query string) {
	e.Helper()
	_, err := e.db.ExecContext(e.Context(), query)
	e.must(err)
}

// in is the schema or database that a name stands for.
func (e env) in(name string) string {
	e.Helper()
	if name == "" {
		query := "SELECT DATABASE()"
		if e.engine == migrations.Postgres {
			query = "SELECT current_schema()"
		}
		e.must(e.db.QueryRowContext(e.Context(), query).Scan(&name))
	}
	return name
}

func (e env) placeholder() string {
	if e.engine == migrations.Postgres {
		return "$1"
	}
	return "?"
}

// tables are the tables of a schema, sorted.
func (e env) tables(schemaName string) []string {
	e.Helper()
	return e.strings("SELECT table_name FROM information_schema.tables WHERE table_schema = "+e.placeholder(), e.in(schemaName))
}

func (e env) strings(query string, args ...any) []string {
	e.Helper()
	rows, err := e.db.QueryContext(e.Context(), query, args...)
	e.must(err)
	defer func() { _ = rows.Close() }()
	var list []string
	for rows.Next() {
		var s string
		e.must(rows.Scan(&s))
		list = append(list, s)
	}
	e.must(rows.Err())
	slices.Sort(list)
	return list
}

// all are the tables of a schema that is up to date.
func all() []string {
	return slices.Sorted(slices.Values(append(schema.Tables(), schema.VersionTable)))
}

func (e env) wantTables(schemaName string, want []string) {
	e.Helper()
	if got := e.tables(schemaName); !slices.Equal(got, want) {
		e.Errorf("tables of %q: %v, want %v", schemaName, got, want)
	}
}

// versions are how often each version is recorded.
func (e env) versions(table string) map[int64]int {
	e.Helper()
	rows, err := e.db.QueryContext(e.Context(), "SELECT version_id FROM "+table)
	e.must(err)
	defer func() { _ = rows.Close() }()
	versions := map[int64]int{}
	for rows.Next() {
		var v int64
		e.must(rows.Scan(&v))
		versions[v]++
	}
	e.must(rows.Err())
	return versions
}

func (e env) wantVersions(table string, want map[int64]int) {
	e.Helper()
	if got := e.versions(table); !maps.Equal(got, want) {
		e.Errorf("%s records %v, want %v", table, got, want)
	}
}

// everyVersion is what the version table has when all is applied, once.
func everyVersion() map[int64]int {
	versions := map[int64]int{}
	for v := range schema.Version + 1 {
		versions[v] = 1
	}
	return versions
}

func (e env) status(opts migrations.Options) []migrations.Migration {
	e.Helper()
	list, err := migrations.Status(e.Context(), e.db, opts)
	e.must(err)
	return list
}

// wantApplied is the check after every way to the tables: programs find their version, and Up has
// nothing left to do.
func (e env) wantApplied(opts migrations.Options) {
	e.Helper()
	list := e.status(opts)
	if len(list) != int(schema.Version) {
		e.Errorf("Status lists %d migrations, want %d", len(list), schema.Version)
	}
	for _, m := range list {
		if !m.Applied || m.Name == "" {
			e.Errorf("Status says %+v", m)
		}
	}
	if again := e.up(opts); len(again) > 0 {
		e.Errorf("Up applied %v once more", again)
	}
}

// freshSchema names a schema that is not there yet, or a database that was made for it: Up creates
// only schemas.
func (e env) freshSchema() string {
	e.Helper()
	if e.engine == migrations.Postgres {
		return `odd "schema` + "`s $1"
	}
	name := e.in("") + "`s odd"
	quoted := schema.QuoteMySQL(name)
	e.exec("CREATE DATABASE " + quoted)
	e.Cleanup(func() {
		if _, err := e.db.ExecContext(context.Background(), "DROP DATABASE "+quoted); err != nil {
			e.Errorf("drop the second database: %v", err)
		}
	})
	return name
}

func (e env) quote(name string) string {
	if e.engine == migrations.Postgres {
		return schema.QuotePostgres(name)
	}
	return schema.QuoteMySQL(name)
}

func hasPostgres() bool { return slices.Contains(testdb.Engines(), devdb.Postgres) }
