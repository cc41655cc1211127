package pglock

import (
	"context"
	"fmt"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/postgres"
)

// on returns what the generated queries run on.
func (e *engine) on(db pgdb.DBTX) pgdb.DBTX { return postgres.On(db, e.schema) }

// ownConns is how many connections the leases of one pool and TTL use by default, without the one that listens.
const ownConns = 4

// openEngine makes an engine with a pool of its own.
func openEngine(ctx context.Context, of shareKey) (*engine, func(), error) {
	if err := of.host.Ping(ctx); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", dblock.ErrUnavailable, err)
	}
	pool, err := postgres.OpenPool(ctx, of.host, of.conns, nil)
	if err != nil {
		return nil, nil, err
	}
	e := &engine{pool: pool}
	if e.schema, err = postgres.RequireSchema(ctx, pool, of.schema); err != nil {
		pool.Close()
		return nil, nil, err
	}
	if e.notDurable, err = e.undurable(ctx); err != nil {
		pool.Close()
		return nil, nil, fmt.Errorf("%w: %w", dblock.ErrUnavailable, err)
	}
	return e, func() { postgres.ClosePool(pool) }, nil
}
