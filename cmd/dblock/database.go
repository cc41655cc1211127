package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dblock-go/dblock/internal/devdb"
)

// databaseFlags choose the database of a command.
type databaseFlags struct {
	Database string `required:"" env:"DBLOCK_DATABASE" placeholder:"URL" help:"Database: postgres://user:password@host:5432/name, or for MySQL and MariaDB a DSN of the Go driver: user:password@tcp(host:3306)/name."`
	Schema   string `placeholder:"NAME" help:"Postgres: the schema of the tables (up creates it). MySQL: their database. Default: what the connection has."`
}

// dialTimeout is for servers that don't even refuse.
const dialTimeout = 10 * time.Second

func (f databaseFlags) isPostgres() bool {
	return strings.HasPrefix(f.Database, "postgres://") || strings.HasPrefix(f.Database, "postgresql://")
}

// open reads the flag and connects to nothing yet. No error of it shows the password.
func (f databaseFlags) open() (*sql.DB, error) {
	if f.isPostgres() {
		config, err := f.postgresConfig()
		if err != nil {
			return nil, err
		}
		return stdlib.OpenDB(*config.ConnConfig), nil
	}
	config, err := f.mysqlConfig()
	if err != nil {
		return nil, err
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, fmt.Errorf("--database: %w", err)
	}
	return sql.OpenDB(connector), nil
}

// connect makes something of dblock's on the database. closePool ends the connections; on an error
// they have ended.
func connect[T any](
	ctx context.Context, f databaseFlags, onPostgres func(*pgxpool.Pool) (T, error), onMySQL func(*sql.DB) (T, error),
) (made T, closePool func() error, err error) {
	if f.isPostgres() {
		config, err := f.postgresConfig()
		if err != nil {
			return made, nil, err
		}
		pool, err := pgxpool.NewWithConfig(ctx, config)
		if err != nil {
			return made, nil, err
		}
		if made, err = onPostgres(pool); err != nil {
			pool.Close()
		}
		return made, func() error { pool.Close(); return nil }, err
	}
	db, err := f.open()
	if err != nil {
		return made, nil, err
	}
	if made, err = onMySQL(db); err != nil {
		err = errors.Join(err, db.Close())
	}
	return made, db.Close, err
}

// closeSoon closes what a command had, also after its context has ended.
func closeSoon(ctx context.Context, closes func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialTimeout)
	defer cancel()
	return closes(ctx)
}

func (f databaseFlags) postgresConfig() (*pgxpool.Config, error) {
	config, err := devdb.ParsePostgres(f.Database)
	if err != nil {
		return nil, fmt.Errorf("--database: %w", err)
	}
	if config.ConnConfig.ConnectTimeout > dialTimeout && !strings.Contains(f.Database, "connect_timeout=") {
		config.ConnConfig.ConnectTimeout = dialTimeout
	}
	pin(&config.ConnConfig.Config, f.Schema)
	return config, nil
}

func (f databaseFlags) mysqlConfig() (*mysql.Config, error) {
	config, err := devdb.ParseMySQL(f.Database)
	if err != nil {
		return nil, fmt.Errorf("--database (no postgres:// URL, so taken for MySQL): %w", err)
	}
	config.Timeout = cmp.Or(config.Timeout, dialTimeout)
	config.Logger = &mysql.NopLogger{} // what it would say is in the errors too
	return config, nil
}
