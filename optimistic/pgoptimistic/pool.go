package pgoptimistic

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/sqlerr"
)

// acquire takes a connection for a statement that writes, if db is a pool. If none comes in time,
// nothing was sent.
func acquire(ctx context.Context, db DB) (on DB, taken *pgxpool.Conn, err error) {
	pool, is := db.(*pgxpool.Pool)
	if !is {
		return db, nil, nil
	}
	if taken, err = pool.Acquire(ctx); err != nil {
		return nil, nil, sqlerr.Unwritten(err)
	}
	return taken, taken, nil
}
