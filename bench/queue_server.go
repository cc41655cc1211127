package bench

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

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
