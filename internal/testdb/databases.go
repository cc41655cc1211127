package testdb

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/devdb"
)

const (
	// Enough for a crowd of goroutines in one test, and small enough for many parallel tests on a
	// server that takes 1,000 connections.
	maxConns = 20

	// Creating and dropping a database takes about a tenth of a second; a machine that is busy
	// with other tests is given much more.
	databaseTimeout = time.Minute

	// A pool that is not empty by then was leaked a connection.
	closeTimeout = 10 * time.Second
)

// DSN is the connection string of a fresh database of the test's own: a URL on Postgres, a DSN of
// the Go driver without any options on MariaDB and MySQL. It is dropped when the test ends.
func DSN(tb testing.TB, kind devdb.Kind) string {
	tb.Helper()
	return created(tb, Server(tb, kind).CreateDatabase)
}

// created returns the DSN of the database that create creates. It is dropped when the test ends.
func created(tb testing.TB, create func(context.Context) (string, func(context.Context) error, error)) (dsn string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), databaseTimeout)
	defer cancel()
	var drop func(context.Context) error
	err := onceAdmitted(ctx, func() (err error) {
		dsn, drop, err = create(ctx)
		return err
	})
	if err != nil {
		tb.Fatalf("testdb: %v", err)
	}
	dropAtEnd(tb, drop)
	return dsn
}

func dropAtEnd(tb testing.TB, drop func(context.Context) error) {
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), databaseTimeout)
		defer cancel()
		if err := onceAdmitted(ctx, func() error { return drop(ctx) }); err != nil {
			tb.Errorf("testdb: %v", err)
		}
	})
}

// onceAdmitted repeats fn while the server has too many connections: other tests have them.
func onceAdmitted(ctx context.Context, fn func() error) error {
	for {
		err := fn()
		if !hasTooManyConnections(err) || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func hasTooManyConnections(err error) bool {
	if my := (*mysql.MySQLError)(nil); errors.As(err, &my) {
		return my.Number == 1040
	}
	pg := (*pgconn.PgError)(nil)
	return errors.As(err, &pg) && pg.Code == "53300"
}

// PostgresURL is DSN for Postgres.
func PostgresURL(tb testing.TB) string {
	tb.Helper()
	return DSN(tb, devdb.Postgres)
}

// MySQLDSN is DSN for the MySQL-family server under test.
func MySQLDSN(tb testing.TB) string {
	tb.Helper()
	kind, err := mysqlFamily(context.Background())
	if err != nil {
		tb.Fatalf("testdb: %v", err)
	}
	return DSN(tb, kind)
}

// Postgres is a pool of up to 20 connections to a fresh database of the test's own.
func Postgres(tb testing.TB) *pgxpool.Pool {
	tb.Helper()
	return openPostgres(tb, PostgresURL(tb))
}

func openPostgres(tb testing.TB, url string) *pgxpool.Pool {
	tb.Helper()
	config, err := devdb.ParsePostgres(url)
	if err != nil {
		tb.Fatalf("testdb: %v", err)
	}
	config.MaxConns = maxConns
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		tb.Fatalf("testdb: %v", err)
	}
	tb.Cleanup(func() { closeInTime(tb, closeTimeout, pool.Close) })
	return pool
}

// MySQL is a pool of up to 20 connections to a fresh database of the test's own, on the
// MySQL-family server under test.
func MySQL(tb testing.TB) *sql.DB {
	tb.Helper()
	return openMySQL(tb, MySQLDSN(tb))
}

// MySQLOn is MySQL for a test that ranges over Engines and names the kind.
func MySQLOn(tb testing.TB, kind devdb.Kind) *sql.DB {
	tb.Helper()
	return openMySQL(tb, DSN(tb, kind))
}

// LimitReads sets sql_select_limit to 0 on all connections of a pool.
func LimitReads(tb testing.TB, db *sql.DB, conns int) {
	tb.Helper()
	for range conns {
		conn, err := db.Conn(tb.Context())
		if err != nil {
			tb.Fatalf("testdb: %v", err)
		}
		defer func() { _ = conn.Close() }() // the next one is another connection
		if _, err := conn.ExecContext(tb.Context(), "SET SESSION sql_select_limit = 0"); err != nil {
			tb.Fatalf("testdb: %v", err)
		}
	}
}

func openMySQL(tb testing.TB, dsn string) *sql.DB {
	tb.Helper()
	config, err := devdb.ParseMySQL(dsn)
	if err != nil {
		tb.Fatalf("testdb: %v", err)
	}
	config.Logger = &mysql.NopLogger{} // tests cut connections on purpose
	connector, err := mysql.NewConnector(config)
	if err != nil {
		tb.Fatalf("testdb: %v", err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(maxConns)
	db.SetMaxIdleConns(maxConns)
	tb.Cleanup(func() {
		closeInTime(tb, closeTimeout, func() {
			if err := db.Close(); err != nil {
				tb.Errorf("testdb: close the pool: %v", err)
			}
		})
	})
	return db
}

// closeInTime turns a connection that was never given back into a failure of the test that kept
// it; pgxpool's Close would wait for it for ever.
func closeInTime(tb testing.TB, limit time.Duration, fn func()) {
	tb.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	select {
	case <-done:
	case <-time.After(limit):
		tb.Errorf("testdb: the pool did not close in %v: a connection was not given back", limit)
	}
}
