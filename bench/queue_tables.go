package bench

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/internal/devdb"
)

// openTables opens a connection to look at tables from outside.
func openTables(ctx context.Context, env *Env) (jobTables, error) {
	if env.Kind == devdb.Postgres {
		conn, err := env.connect(ctx)
		if err != nil {
			return nil, err
		}
		return postgresTables{conn}, nil
	}
	db, err := env.mysql(ctx, 1)
	if err != nil {
		return nil, err
	}
	return mysqlTables{db}, nil
}

type postgresTables struct{ conn *pgx.Conn }

func (t postgresTables) exec(ctx context.Context, statement string) error {
	_, err := t.conn.Exec(ctx, statement)
	return err
}

func (t postgresTables) number(ctx context.Context, query string) (n int64, err error) {
	err = t.conn.QueryRow(ctx, query).Scan(&n)
	return n, err
}

func (t postgresTables) close() error { return t.conn.Close(context.Background()) }

type mysqlTables struct{ db *sql.DB }

func (t mysqlTables) exec(ctx context.Context, statement string) error {
	_, err := t.db.ExecContext(ctx, statement)
	return err
}

func (t mysqlTables) number(ctx context.Context, query string) (n int64, err error) {
	err = t.db.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}

func (t mysqlTables) close() error { return t.db.Close() }
