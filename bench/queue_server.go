package bench

import (
	"context"
	"errors"

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

// pin holds a snapshot of its own until it is closed.
func pin(ctx context.Context, env *Env) (onlooker, error) {
	begin := []string{"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ", "START TRANSACTION WITH CONSISTENT SNAPSHOT"}
	if env.Kind == devdb.Postgres {
		begin = []string{"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", "SELECT pg_current_snapshot()"}
	}
	o, err := look(ctx, env)
	if err != nil {
		return nil, err
	}
	for _, statement := range begin {
		if err := o.exec(ctx, statement); err != nil {
			return nil, errors.Join(err, o.close())
		}
	}
	return o, nil
}
