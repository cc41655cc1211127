package bench

import (
	"context"
	"database/sql"
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
	DSN     string  // of a database of the scenario's own, with dblock's tables
	Clients int     // callers
	Conns   int     // connections that it may use
	Jobs    int     // of a backlog, or of a batch; 0: as many as suit the time of a round
	Rate    float64 // operations a second of those that have a rate of their own; 0: theirs
	Seed    uint64
	Dir     string // where a scenario without a server may write

	statements atomic.Int64
}

// Statements counts n statements that were sent to Postgres on another way than Env.Postgres. (The
// others count by themselves.)
func (e *Env) Statements(n int) { e.statements.Add(int64(n)) }

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

// MySQL opens a pool of Conns connections, all of them made.
func (e *Env) MySQL(ctx context.Context) (*sql.DB, error) { return e.mysql(ctx, e.Conns) }

func (e *Env) mysql(ctx context.Context, conns int) (*sql.DB, error) {
	cfg, err := devdb.ParseMySQL(e.DSN)
	if err != nil {
		return nil, err
	}
	cfg.Logger = &mysql.NopLogger{} // what it would say is in the errors too
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
