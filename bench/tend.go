package bench

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock/internal/devdb"
)

// checkpoint has no round pay for the pages that the one before has changed, where the user may do that. Nor does it pay for files of
// the server's log, which one that has only just been started makes as it goes, and one that has run for long uses again.
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
