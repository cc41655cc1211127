package pgqueue

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/postgres"
)

// ownConns is how many connections a Queue uses, without that of the heartbeats.
const ownConns = 10

// sessions are parameters besides those of postgres. A bitmap would read all ready jobs of a queue before the first is claimed.
var sessions = map[string]string{"enable_bitmapscan": "off"}

// open makes an engine with pools of its own.
func open(ctx context.Context, host *pgxpool.Pool, schemaName string) (*database, error) {
	if err := host.Ping(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", dblock.ErrUnavailable, err)
	}
	pool, err := postgres.OpenPool(ctx, host, ownConns, sessions)
	if err != nil {
		return nil, err
	}
	heart, err := postgres.OpenPool(ctx, host, 1, sessions)
	if err != nil {
		pool.Close()
		return nil, err
	}
	d := &database{host: host, pool: pool, heart: heart, chosen: schemaName, sender: member.NewID().String()}
	if d.schema, err = postgres.RequireSchema(ctx, pool, schemaName); err != nil {
		d.Close()
		return nil, err
	}
	d.claim, d.finish, d.shut = d.sql(pgdb.ClaimJobs), d.sql(pgdb.FinishJobs), d.sql(pgdb.CloseClaims)
	d.shutEnded = d.sql(pgdb.CloseEndedClaims)
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
