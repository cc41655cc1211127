package pglock

import (
	"context"
	"fmt"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/postgres"
)

// ownConns is how many connections the leases of one pool and TTL use by default, without the one
// that listens.
const ownConns = 4

func newDriver(schema *postgres.Schema, pool *postgres.Pool) *leaseDriver {
	return &leaseDriver{Members: postgres.NewMembers(schema, pool, pool), pool: pool, schema: schema, db: schema.On(pool)}
}

// openDriver makes a driver with a pool of its own.
func openDriver(ctx context.Context, of shareKey) (*leaseDriver, lease.Backend, error) {
	schema, pools, err := postgres.Open(ctx, of.host, of.schema, nil, of.conns)
	if err != nil {
		return nil, lease.Backend{}, err
	}
	pool := pools[0]
	d := newDriver(schema, pool)
	if d.notDurable, err = d.undurable(ctx); err != nil {
		pool.Close()
		return nil, lease.Backend{}, fmt.Errorf("%w: %w", dblock.ErrUnavailable, err)
	}
	return d, d.backend(), nil
}
