package bench

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/devdb"
)

// Env is what a scenario is opened with.
type Env struct {
	Kind    devdb.Kind
	Server  *devdb.Server
	DSN     string // of a database of the scenario's own, with dblock's tables
	Clients int
	Conns   int     // connections that it may use
	Jobs    int     // of a backlog, or of a batch; 0: as many as suit the time of a round
	Rate    float64 // operations a second of those that have a rate of their own; 0: theirs
	Seed    uint64
	Dir     string // where a scenario without a server may write

	statements atomic.Int64
}

// Postgres opens a pool of Conns connections, all of them made, that counts its statements.
func (e *Env) Postgres(ctx context.Context) (*pgxpool.Pool, error) { return e.postgres(ctx, e.Conns) }

func (e *Env) postgres(ctx context.Context, conns int) (*pgxpool.Pool, error) {
	cfg, err := devdb.ParsePostgres(e.DSN)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns, cfg.MinConns = int32(conns), int32(conns)
	cfg.ConnConfig.Tracer = statementCounter{&e.statements}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := warmPool(ctx, conns, func() (func(), error) {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		return conn.Release, nil
	}); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// mysql opens a pool, all of whose connections are made.
func (e *Env) mysql(ctx context.Context, conns int, options ...func(*mysql.Config)) (*sql.DB, error) {
	cfg, err := devdb.ParseMySQL(e.DSN)
	if err != nil {
		return nil, err
	}
	cfg.Logger = &mysql.NopLogger{} // the errors say the same
	for _, option := range options {
		option(cfg)
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	if err := warmPool(ctx, conns, func() (func(), error) {
		conn, err := db.Conn(ctx)
		if err != nil {
			return nil, err
		}
		return func() { _ = conn.Close() }, nil
	}); err != nil {
		_ = db.Close()
		return nil, err
	}
	return db, nil
}

// warmPool holds all connections of a pool at once, so that none is made while the clock runs.
func warmPool(ctx context.Context, n int, acquire func() (release func(), err error)) error {
	for range n {
		release, err := acquire()
		if err != nil {
			return err
		}
		defer release()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// on makes something of dblock's on a pool. If that fails, it closes the pool.
func on[T any](d *Database, onPostgres func(*pgxpool.Pool) (T, error), onMySQL func(*sql.DB) (T, error)) (made T, err error) {
	if d.pool != nil {
		made, err = onPostgres(d.pool)
	} else {
		made, err = onMySQL(d.db)
	}
	if err != nil {
		err = errors.Join(err, d.Close())
	}
	return made, err
}

// statementCounter counts what is sent through pgx.
type statementCounter struct{ n *atomic.Int64 }

func (c statementCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}

func (statementCounter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (statementCounter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (c statementCounter) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {
	c.n.Add(1)
}

func (statementCounter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}
