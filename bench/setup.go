package bench

import (
	"context"
	"database/sql"
	"errors"
	"os"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // migrations take a *sql.DB

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/migrations"
)

// database creates a database with dblock's tables. It is dropped when the suite is closed.
func (b *suite) database(ctx context.Context) (dsn string, err error) {
	dsn, drop, err := b.server.CreateDatabase(ctx)
	if err != nil {
		return "", err
	}
	if b.server.PID() == 0 { // a server of our own goes with all that is in it
		b.undo = append(b.undo, func() error { return drop(context.WithoutCancel(ctx)) })
	}
	db, err := sql.Open(pick(b.kind, "pgx", "mysql"), dsn)
	if err != nil {
		return "", err
	}
	_, err = migrations.Up(ctx, db, migrations.Options{})
	return dsn, errors.Join(err, db.Close())
}

// dir is where a scenario may write files: beside the server's data if the server is our own.
func (b *suite) dir() string {
	if dir := b.server.Dir(); dir != "" {
		return dir
	}
	return os.TempDir()
}

// side opens a side connection: it sets up and reads what the measured connections work on.
func (e *Env) side(ctx context.Context) (*Database, error) { return e.database(ctx, 1) }

// checkpoint makes Postgres write its pages before a round, if the user may do that. So a round
// does not pay for pages that the round before has changed, nor for log files, which a new server
// creates and an old one uses again.
func checkpoint(ctx context.Context, env *Env) error { return maintain(ctx, env, "CHECKPOINT") }

// analyze updates Postgres's planner statistics for a backlog that was just enqueued, as autovacuum
// does in the long run.
func analyze(ctx context.Context, env *Env) error { return maintain(ctx, env, "ANALYZE") }

// maintain runs a statement on Postgres, if the user may do that.
func maintain(ctx context.Context, env *Env, statement string) error {
	if env.Kind != devdb.Postgres {
		return nil
	}
	side, err := env.side(ctx)
	if err != nil {
		return err
	}
	_, err = side.Exec(ctx, statement)
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == "42501" { // insufficient_privilege
		err = nil
	}
	return errors.Join(err, side.Close())
}
