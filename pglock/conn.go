package pglock

import (
	"context"
	"fmt"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/postgres"
)

// ownConns is how many connections the leases of one pool and TTL use by default, without the one that listens.
const ownConns = 4

func newEngine(schema *postgres.Schema, pool *postgres.Pool) *engine {
	return &engine{Members: postgres.NewMembers(schema, pool, pool), pool: pool, schema: schema, db: schema.On(pool)}
}

// openEngine makes an engine with a pool of its own.
func openEngine(ctx context.Context, of shareKey) (*engine, func(), error) {
	schema, pools, err := postgres.Open(ctx, of.host, of.schema, nil, of.conns)
	if err != nil {
		return nil, nil, err
	}
	pool := pools[0]
	e := newEngine(schema, pool)
	if e.notDurable, err = e.undurable(ctx); err != nil {
		pool.Close()
		return nil, nil, fmt.Errorf("%w: %w", dblock.ErrUnavailable, err)
	}
	return e, pool.Close, nil
}
