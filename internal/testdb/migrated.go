package testdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/migrations"
)

// Migrated is DSN with dblock's tables in it. They are copied from a database that this process has
// migrated, which takes a fraction of the time.
func Migrated(tb testing.TB, kind devdb.Kind) string {
	tb.Helper()
	server := Server(tb, kind)
	ctx, cancel := context.WithTimeout(context.Background(), databaseTimeout)
	defer cancel()
	o := originals[kind]
	o.once.Do(func() { o.err = o.make(ctx, server) })
	if o.err != nil {
		tb.Fatalf("testdb: %v", o.err)
	}
	if kind == devdb.Postgres {
		return created(tb, func(ctx context.Context) (string, func(context.Context) error, error) {
			return server.CopyDatabase(ctx, o.dsn)
		})
	}
	dsn := DSN(tb, kind)
	if err := onceAdmitted(ctx, func() error { return runScript(ctx, dsn, o.script) }); err != nil {
		tb.Fatalf("testdb: copy the tables: %v", err)
	}
	return dsn
}

// MigratedPostgres is Postgres on a database with dblock's tables.
func MigratedPostgres(tb testing.TB) *pgxpool.Pool {
	tb.Helper()
	return openPostgres(tb, Migrated(tb, devdb.Postgres))
}

// MigratedMySQL is MySQLOn on a database with dblock's tables.
func MigratedMySQL(tb testing.TB, kind devdb.Kind) *sql.DB {
	tb.Helper()
	return openMySQL(tb, Migrated(tb, kind))
}

// original is the database that Migrated copies.
type original struct {
	once   sync.Once
	dsn    string
	script string // of MariaDB and MySQL: makes its tables and their rows
	drop   func(context.Context) error
	err    error
}

var originals = map[devdb.Kind]*original{devdb.Postgres: {}, devdb.MariaDB: {}, devdb.MySQL: {}}

func (o *original) make(ctx context.Context, server *devdb.Server) error {
	var err error
	if o.dsn, o.drop, err = server.CreateDatabase(ctx); err != nil {
		return err
	}
	db, err := openPlain(server.Kind, o.dsn)
	if err != nil {
		return err
	}
	_, err = migrations.Up(ctx, db, migrations.Options{})
	if err == nil && server.Kind != devdb.Postgres {
		o.script, err = scriptOf(ctx, db)
	}
	return errors.Join(err, db.Close()) // Postgres copies no database with a session in it
}

func openPlain(kind devdb.Kind, dsn string) (*sql.DB, error) {
	if kind != devdb.Postgres {
		return sql.Open("mysql", dsn)
	}
	config, err := devdb.ParsePostgres(dsn)
	if err != nil {
		return nil, err
	}
	return stdlib.OpenDB(*config.ConnConfig), nil
}

// scriptOf makes the tables of the connection's database in another one, with their rows.
func scriptOf(ctx context.Context, db *sql.DB) (string, error) {
	var here string
	if err := db.QueryRowContext(ctx, "SELECT DATABASE()").Scan(&here); err != nil {
		return "", err
	}
	tables, err := tablesOf(ctx, db)
	if err != nil {
		return "", err
	}
	var script []string
	for _, table := range tables {
		var name, create string
		if err := db.QueryRowContext(ctx, "SHOW CREATE TABLE "+table).Scan(&name, &create); err != nil {
			return "", err
		}
		var rows int
		if err := db.QueryRowContext(ctx, "SELECT count(*) FROM "+table).Scan(&rows); err != nil {
			return "", err
		}
		script = append(script, create)
		if rows > 0 {
			script = append(script, fmt.Sprintf("INSERT INTO %[2]s SELECT * FROM %[1]s.%[2]s", here, table))
		}
	}
	return strings.Join(script, ";\n"), nil
}

func tablesOf(ctx context.Context, db *sql.DB) (tables []string, err error) {
	rows, err := db.QueryContext(ctx, "SHOW TABLES")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var table string
		if err := rows.Scan(&table); err != nil {
			return nil, err
		}
		tables = append(tables, table)
	}
	return tables, rows.Err()
}

func runScript(ctx context.Context, dsn, script string) error {
	config, err := devdb.ParseMySQL(dsn)
	if err != nil {
		return err
	}
	config.MultiStatements = true
	db, err := sql.Open("mysql", config.FormatDSN())
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, script)
	return errors.Join(err, db.Close())
}

// dropOriginals leaves nothing on a server that was given.
func dropOriginals() error {
	ctx, cancel := context.WithTimeout(context.Background(), databaseTimeout)
	defer cancel()
	var errs []error
	for _, o := range originals {
		if o.drop != nil {
			errs = append(errs, o.drop(ctx))
		}
	}
	return errors.Join(errs...)
}
