package bench

import (
	"context"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/mysqllock"
	"github.com/dblock-go/dblock/pglock"
)

// leases are dblock's lease locks, beside other locks, and beside their own statements.
func leases() []Scenario {
	merged := func(ctx context.Context, env *Env) (Locker, error) { return openLease(ctx, env, 0, 0) }
	single := func(ctx context.Context, env *Env) (Locker, error) { return openLease(ctx, env, 1, env.Conns) }
	return append(LockScenarios("lease", "dblock's lease locks, durable", nil, []int{4}, merged),
		lockScenario("lease/bare", "a pair of UPDATEs by hand: no heartbeat, no expiry, no waiting", nil, []int{2, 4, 16, 64}, false, openBare),
		lockScenario("lease/single", "dblock's lease locks, a statement a call", nil, []int{4, 16, 64}, false, single),
		lockScenario("lease/merged", "dblock's lease locks: calls that queue share the next statement", nil, []int{4}, false, merged),
	)
}

func openLease(ctx context.Context, env *Env, maxBatch, maxInFlight int) (Locker, error) {
	if env.Kind == devdb.Postgres {
		pool, err := env.Postgres(ctx)
		if err != nil {
			return nil, err
		}
		l, err := pglock.NewLeaseLocker(ctx, pool, pglock.LeaseOptions{MaxBatch: maxBatch, MaxInFlight: maxInFlight})
		return lockerOn{l, func() error { pool.Close(); return nil }}, err
	}
	db, err := env.MySQL(ctx)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(2*env.Conns + 1) // a heartbeat keeps one
	l, err := mysqllock.NewLeaseLocker(ctx, db, mysqllock.LeaseOptions{MaxBatch: maxBatch, MaxInFlight: maxInFlight})
	return lockerOn{l, db.Close}, err
}
