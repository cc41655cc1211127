package pglock

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/pgfault"
	"github.com/dblock-go/dblock/internal/pgschema"
)

// on returns what the generated queries run on.
func (e *engine) on(db pgdb.DBTX) pgdb.DBTX { return pgschema.On(db, e.schema) }

// ownConns is how many connections the leases of one pool and TTL use by default, without the one that listens.
const ownConns = 4

// sessions begin with these parameters. They have the server plan each statement once, by its keys. Left to itself it
// plans anew each time, as an array of unknown length looks dear, and that costs a lone caller more than the rest of the
// statement; and it reads small tables whole, which a plan that is kept must not do as they grow. Nothing here gains by
// more than READ COMMITTED, whatever the host's sessions begin with.
var sessions = map[string]string{
	"default_transaction_isolation": "read committed", "default_transaction_read_only": "off",

	"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "datestyle": "ISO", "client_encoding": "UTF8", "bytea_output": "hex", "enable_hashjoin": "off", "enable_mergejoin": "off",
	"jit": "off", // what such a plan costs looks worth compiling: half a second, for a row
}

// openEngine makes an engine with a pool of its own.
func openEngine(ctx context.Context, of shareKey) (*engine, func(), error) {
	if err := of.host.Ping(ctx); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", dblock.ErrUnavailable, err)
	}
	pool, err := openPool(ctx, of, sessions)
	if pgfault.RefusesParameters(err) { // a pooler: to set them later would set them for others, who share its connections
		pool, err = openPool(ctx, of, nil)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", dblock.ErrUnavailable, err)
	}
	e := &engine{pool: pool}
	if e.schema, err = pgschema.Find(ctx, pool, of.schema); err != nil {
		pool.Close()
		return nil, nil, err
	}
	if e.notDurable, err = e.undurable(ctx); err != nil {
		pool.Close()
		return nil, nil, fmt.Errorf("%w: %w", dblock.ErrUnavailable, err)
	}
	return e, func() { closeWithin(pool, longestClose) }, nil
}

// openPool makes a pool as the host's is, whose sessions begin with these parameters.
func openPool(ctx context.Context, of shareKey, parameters map[string]string) (*pgxpool.Pool, error) {
	cfg := of.host.Config()
	cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = of.conns, 0, 0
	own := cfg.ConnConfig.RuntimeParams
	maps.DeleteFunc(own, func(name, _ string) bool { return parameters[strings.ToLower(name)] != "" })
	maps.Copy(own, parameters)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// longestClose is for how long a pool's end is waited for: over a network that is silent it takes pgx 15 s.
const longestClose = 5 * time.Second

func closeWithin(pool *pgxpool.Pool, d time.Duration) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		pool.Close()
	}()
	select {
	case <-closed:
	case <-time.After(d):
	}
}
