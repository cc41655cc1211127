package pgqueue

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/postgres"
)

// ownConns is how many connections a Queue uses, without that of the heartbeats.
const ownConns = 10

// sessions are parameters besides those of postgres. A bitmap would read all ready jobs of a queue before the first is claimed.
var sessions = map[string]string{"enable_bitmapscan": "off"}

// open makes an engine with pools of its own.
func open(ctx context.Context, host *pgxpool.Pool, schemaName string) (*database, error) {
	schema, pools, err := postgres.Open(ctx, host, schemaName, sessions, ownConns, 1)
	if err != nil {
		return nil, err
	}
	pool, heart := pools[0], pools[1]
	d := &database{
		Schema: schema, Members: postgres.NewMembers(schema, heart, pool),
		host: host, pool: pool, heart: heart, db: schema.On(pool), chosen: schemaName, sender: member.NewID().String(),
	}
	if err := d.findChannel(ctx); err != nil {
		d.Close()
		return nil, fmt.Errorf("%w: %w", dblock.ErrUnavailable, err)
	}
	return d, nil
}
