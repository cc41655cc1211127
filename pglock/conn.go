package pglock

import (
	"context"
	"fmt"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// ownConns is how many connections the leases of one pool and TTL use by default, without those
// that listen and send heartbeats.
const ownConns = 4

func newDriver(schema *postgres.Schema, pool, heartbeats *postgres.Pool) *leaseDriver {
	return &leaseDriver{
		Members: postgres.NewMembers(schema, heartbeats, pool), pool: pool, heartbeats: heartbeats, schema: schema, db: schema.On(pool),
		gets: make(turns, 1), sweeps: make(turns, 1),
	}
}

// turns lets one call after another use a connection: calls of other kinds have the others.
type turns chan struct{}

// take waits for a turn while ctx lives. Call give when it is over.
func (t turns) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return sqlerr.Unwritten(ctx.Err())
	}
}

func (t turns) give() { <-t }

// openDriver makes a driver with a pool of its own.
func openDriver(ctx context.Context, of shareKey) (*leaseDriver, lease.Backend, error) {
	schema, pools, err := postgres.Open(ctx, of.host, of.schema, nil, of.conns, 1)
	if err != nil {
		return nil, lease.Backend{}, err
	}
	d := newDriver(schema, pools[0], pools[1])
	if d.notDurable, err = d.undurable(ctx); err != nil {
		d.close()
		return nil, lease.Backend{}, fmt.Errorf("%w: %w", dblock.ErrUnavailable, err)
	}
	return d, d.backend(), nil
}

func (d *leaseDriver) close() {
	d.heartbeats.Close()
	d.pool.Close()
}
