package suite

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// Connect opens the suite's own connections to a database.
func Connect(t *testing.T, kind devdb.Kind, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(DriverOf(kind), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// ConnectOn is a pool of the suite's own on a dialer that strikes.
func ConnectOn(kind devdb.Kind, dsn string, dialer *faultconn.Dialer) (*sql.DB, error) {
	if kind == devdb.Postgres {
		cfg, err := pgx.ParseConfig(dsn)
		if err != nil {
			return nil, err
		}
		cfg.DialFunc = dialer.DialContext
		return stdlib.OpenDB(*cfg), nil
	}
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	cfg.DialFunc, cfg.Logger = dialer.DialContext, &mysql.NopLogger{}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

func AppendQuery(dsn, setting string) string {
	if strings.Contains(dsn, "?") {
		return dsn + "&" + setting
	}
	return dsn + "?" + setting
}

func DriverOf(kind devdb.Kind) string {
	if kind == devdb.Postgres {
		return "pgx"
	}
	return "mysql"
}

// Appended is a setting that stands in the DSN's query.
func Appended(setting string) func(*testing.T, string) string {
	return func(_ *testing.T, dsn string) string { return AppendQuery(dsn, setting) }
}
