package pginventory

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/internal/pgpool"
)

// mostUnusable is how many connections of the pool are closed before its hooks are to blame.
const mostUnusable = 8

// acquire returns a connection of the host's pool. A host may have left another encoding on a
// connection, or a hook of the pool an open transaction: such a connection is closed.
func (d *database) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	for n := 1; ; n++ {
		conn, err := d.pool.Acquire(ctx)
		if err != nil {
			return nil, fault.NoWrite(err)
		}
		unusable := pgpool.Usable(conn.Conn().PgConn())
		if unusable == nil {
			return conn, nil
		}
		_ = conn.Conn().Close(ctx)
		conn.Release()
		if n == mostUnusable {
			return nil, unusable
		}
	}
}

// alone runs fn outside of a transaction.
func (d *database) alone(ctx context.Context, fn func(pgdb.DBTX) error) error {
	conn, err := d.acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return fn(d.on(conn))
}
