package bench

import (
	"context"

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
