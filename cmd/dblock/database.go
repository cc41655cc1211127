package main

import (
	"cmp"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
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

// open reads the flag and connects to nothing yet. No error of it shows the password.
func (f databaseFlags) open() (*sql.DB, error) {
	if f.isPostgres() {
		config, err := f.postgresConfig()
		if err != nil {
			return nil, err
		}
		return stdlib.OpenDB(*config), nil
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

func (f databaseFlags) postgresConfig() (*pgx.ConnConfig, error) {
	config, err := devdb.ParsePostgres(f.Database)
	if err != nil {
		return nil, fmt.Errorf("--database: %w", err)
	}
	if config.ConnConfig.ConnectTimeout > dialTimeout && !strings.Contains(f.Database, "connect_timeout=") {
		config.ConnConfig.ConnectTimeout = dialTimeout
	}
	pin(&config.ConnConfig.Config, f.Schema)
	return config.ConnConfig, nil
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
