package bench

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/devdb"
)

// Conn runs hand-written statements. Their parameters are $1, $2, …: each occurs once, and in this
// order.
type Conn interface {
	// Exec returns how many rows the statement changed.
	Exec(ctx context.Context, statement string, args ...any) (rows int64, err error)

	// Query returns the first row. Without one the error of its Scan is sql.ErrNoRows.
	Query(ctx context.Context, query string, args ...any) Row
}

// Row is one row of a result.
type Row interface{ Scan(into ...any) error }

// Database is a pool of connections for hand-written statements: pgxpool on Postgres, database/sql
// on MySQL and MariaDB.
type Database struct {
	Conn
	kind devdb.Kind
	pool *pgxpool.Pool // Postgres
	db   *sql.DB       // MySQL and MariaDB
}

// OpenDatabase opens a pool of so many connections. On MySQL and MariaDB each statement is one
// round trip: the driver writes the arguments into its text.
func OpenDatabase(ctx context.Context, kind devdb.Kind, dsn string, conns int) (*Database, error) {
	env := &Env{Kind: kind, DSN: dsn}
	return env.database(ctx, conns, asText)
}

// Database opens a pool of Conns connections for hand-written statements.
func (e *Env) Database(ctx context.Context) (*Database, error) {
	return e.database(ctx, e.Conns, asText)
}

// asText has each statement of MySQL take one round trip. Without it the driver prepares each
// statement that has arguments.
func asText(cfg *mysql.Config) { cfg.InterpolateParams = true }

func (e *Env) database(ctx context.Context, conns int, options ...func(*mysql.Config)) (*Database, error) {
	if e.Kind == devdb.Postgres {
		pool, err := e.postgres(ctx, conns)
		if err != nil {
			return nil, err
		}
		return &Database{Conn: postgresConn{pool}, kind: e.Kind, pool: pool}, nil
	}
	db, err := e.mysql(ctx, conns, options...)
	if err != nil {
		return nil, err
	}
	return &Database{Conn: mysqlConn{db}, kind: e.Kind, db: db}, nil
}

// pick returns what is written for Postgres, or for MySQL and MariaDB.
func pick[T any](kind devdb.Kind, postgres, mysql T) T {
	if kind == devdb.Postgres {
		return postgres
	}
	return mysql
}

// Tx runs fn in a transaction at READ COMMITTED, which is rolled back if fn fails.
func (d *Database) Tx(ctx context.Context, fn func(Conn) error) error {
	if d.pool != nil {
		return pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error { return fn(postgresConn{tx}) })
	}
	tx, err := d.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	if err := fn(mysqlConn{tx}); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// Keep takes a connection out of the pool. Release puts it back, or closes it if what it has done
// is unknown.
func (d *Database) Keep(ctx context.Context) (conn Conn, release func(unknown bool) error, err error) {
	if d.pool != nil {
		conn, err := d.pool.Acquire(ctx)
		if err != nil {
			return nil, nil, err
		}
		return postgresConn{conn}, func(unknown bool) error {
			if unknown {
				return conn.Hijack().Close(context.WithoutCancel(ctx))
			}
			conn.Release()
			return nil
		}, nil
	}
	one, err := d.db.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	return mysqlConn{one}, func(unknown bool) error {
		if unknown {
			_ = one.Raw(func(any) error { return driver.ErrBadConn }) // which has the pool close it
			return nil
		}
		return one.Close()
	}, nil
}

// Close closes the pool.
func (d *Database) Close() error {
	if d.pool != nil {
		d.pool.Close()
		return nil
	}
	return d.db.Close()
}

// execAll runs statements one by one.
func execAll(ctx context.Context, conn Conn, statements ...string) error {
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

type postgresConn struct {
	on interface {
		Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
		QueryRow(context.Context, string, ...any) pgx.Row
	}
}

func (c postgresConn) Exec(ctx context.Context, statement string, args ...any) (int64, error) {
	tag, err := c.on.Exec(ctx, statement, args...)
	return tag.RowsAffected(), err
}

func (c postgresConn) Query(ctx context.Context, query string, args ...any) Row {
	return c.on.QueryRow(ctx, query, args...)
}

type mysqlConn struct {
	on interface {
		ExecContext(context.Context, string, ...any) (sql.Result, error)
		QueryRowContext(context.Context, string, ...any) *sql.Row
	}
}

var questionMarks = strings.NewReplacer("$1", "?", "$2", "?", "$3", "?", "$4", "?", "$5", "?")

func (c mysqlConn) Exec(ctx context.Context, statement string, args ...any) (int64, error) {
	result, err := c.on.ExecContext(ctx, questionMarks.Replace(statement), args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (c mysqlConn) Query(ctx context.Context, query string, args ...any) Row {
	return c.on.QueryRowContext(ctx, questionMarks.Replace(query), args...)
}
