package bench

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/internal/devdb"
)

// onlooker is a connection beside those that are measured.
type onlooker interface {
	exec(ctx context.Context, statement string) error
	number(ctx context.Context, query string) (int64, error)
	close() error
}

// look makes one.
func look(ctx context.Context, env *Env) (onlooker, error) {
	if env.Kind == devdb.Postgres {
		conn, err := env.connect(ctx)
		if err != nil {
			return nil, err
		}
		return postgresOnlooker{conn}, nil
	}
	db, err := env.mysql(ctx, 1)
	if err != nil {
		return nil, err
	}
	return mysqlOnlooker{db}, nil
}

type postgresOnlooker struct{ conn *pgx.Conn }

func (o postgresOnlooker) exec(ctx context.Context, statement string) error {
	_, err := o.conn.Exec(ctx, statement)
	return err
}

func (o postgresOnlooker) number(ctx context.Context, query string) (n int64, err error) {
	err = o.conn.QueryRow(ctx, query).Scan(&n)
	return n, err
}

func (o postgresOnlooker) close() error { return o.conn.Close(context.Background()) }

type mysqlOnlooker struct{ db *sql.DB }

func (o mysqlOnlooker) exec(ctx context.Context, statement string) error {
	_, err := o.db.ExecContext(ctx, statement)
	return err
}

func (o mysqlOnlooker) number(ctx context.Context, query string) (n int64, err error) {
	err = o.db.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}

func (o mysqlOnlooker) close() error { return o.db.Close() }
