package bench

import (
	"context"
	"database/sql"
	"errors"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock/internal/devdb"
)

// connect makes a connection of its own to Postgres.
func (e *Env) connect(ctx context.Context) (*pgx.Conn, error) {
	cfg, err := devdb.ParsePostgres(e.DSN)
	if err != nil {
		return nil, err
	}
	return pgx.ConnectConfig(ctx, cfg.ConnConfig)
}

// checkpoint has no round pay for the pages that the one before has changed, where the user may do that.
func checkpoint(ctx context.Context, env *Env) error { return tend(ctx, env, "CHECKPOINT") }

// analyze has the planner know of a backlog that was enqueued a moment ago, as in the long run autovacuum sees to.
func analyze(ctx context.Context, env *Env) error { return tend(ctx, env, "ANALYZE") }

// tend runs a statement on Postgres. The others have none that they need.
func tend(ctx context.Context, env *Env, statement string) error {
	if env.Kind != devdb.Postgres {
		return nil
	}
	conn, err := env.connect(ctx)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == "42501" { // insufficient_privilege
		err = nil
	}
	return errors.Join(err, conn.Close(ctx))
}

// pin holds a snapshot until it is released.
func pin(ctx context.Context, env *Env) (release func() error, err error) {
	if env.Kind == devdb.Postgres {
		return pinPostgres(ctx, env)
	}
	return pinMySQL(ctx, env)
}

func pinPostgres(ctx context.Context, env *Env) (release func() error, err error) {
	conn, err := env.connect(ctx)
	if err != nil {
		return nil, err
	}
	release = func() error { return conn.Close(context.WithoutCancel(ctx)) }
	for _, statement := range []string{"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", "SELECT pg_current_snapshot()"} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return nil, errors.Join(err, release())
		}
	}
	return release, nil
}

func pinMySQL(ctx context.Context, env *Env) (release func() error, err error) {
	cfg, err := devdb.ParseMySQL(env.DSN)
	if err != nil {
		return nil, err
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(1)
	for _, statement := range []string{"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ", "START TRANSACTION WITH CONSISTENT SNAPSHOT"} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	return db.Close, nil // with the connection the transaction ends
}
