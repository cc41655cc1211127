package pgqueue

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/pgfault"
	"github.com/dblock-go/dblock/internal/pgschema"
)

// ownConns is how many connections a Queue uses, without that of the heartbeats.
const ownConns = 10

// sessions begin with these parameters. They have the server plan each statement once, by its keys: left to itself it may read a table
// whole that was empty when it last looked, and has a million jobs now.
var sessions = map[string]string{
	"default_transaction_isolation": "read committed", "default_transaction_read_only": "off",

	"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "enable_bitmapscan": "off",
	"datestyle": "ISO", "client_encoding": "UTF8", "bytea_output": "hex", "enable_hashjoin": "off", "enable_mergejoin": "off", "jit": "off",
}

// open makes an engine with pools of its own.
func open(ctx context.Context, host *pgxpool.Pool, schemaName string) (*database, error) {
	if err := host.Ping(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", dblock.ErrUnavailable, err)
	}
	parameters := sessions
	pool, err := openPool(ctx, host, ownConns, parameters)
	if pgfault.RefusesParameters(err) { // a pooler: to set them later would set them for others, who share its connections
		parameters = nil
		pool, err = openPool(ctx, host, ownConns, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", dblock.ErrUnavailable, err)
	}
	heart, err := openPool(ctx, host, 1, parameters)
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("%w: %w", dblock.ErrUnavailable, err)
	}
	d := &database{host: host, pool: pool, heart: heart, chosen: schemaName, sender: member.NewID().String()}
	if d.schema, err = pgschema.Find(ctx, pool, schemaName); err != nil {
		d.Close()
		return nil, err
	}
	d.claim, d.finish, d.shut = d.sql(pgdb.ClaimJobs), d.sql(pgdb.FinishJobs), d.sql(pgdb.CloseClaims)
	d.postpone, d.bury = d.sql(pgdb.DeferJobs), d.sql(pgdb.BuryJobs)
	d.lockClaims, d.cancelsHeld, d.lockJobs = d.sql(pgdb.LockClaims), d.sql(pgdb.CancelsHeld), d.sql(pgdb.LockJobs)
	d.unique, d.lock, d.free, d.admit = d.sql(pgdb.FreeUnique), d.sql(pgdb.LockGroups), d.sql(pgdb.FreePlaces), d.sql(pgdb.AdmitJobs)
	d.takeReady, d.takeScheduled, d.takeBlocked = d.sql(pgdb.TakeReadyJob), d.sql(pgdb.TakeScheduledJob), d.sql(pgdb.TakeBlockedJob)
	d.keepFinished, d.keepDead = d.sql(pgdb.KeepFinished), d.sql(pgdb.KeepDead)
	if err := d.findChannel(ctx); err != nil {
		d.Close()
		return nil, fmt.Errorf("%w: %w", dblock.ErrUnavailable, err)
	}
	return d, nil
}

// openPool makes a pool as the host's is, whose sessions begin with these parameters.
func openPool(ctx context.Context, host *pgxpool.Pool, conns int32, parameters map[string]string) (*pgxpool.Pool, error) {
	cfg := host.Config()
	cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = conns, 0, 0
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

func closeWithin(pool *pgxpool.Pool) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		pool.Close()
	}()
	select {
	case <-closed:
	case <-time.After(longestClose):
	}
}
