package bench

import (
	"context"
	"errors"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/mysqllock"
	"github.com/dblock-go/dblock/pglock"
)

// leases are dblock's lease locks: a durable row a key, merged over keys.
func leases() []Scenario {
	return LockScenarios("lease", "dblock's lease locks, durable", nil, []int{4},
		func(ctx context.Context, env *Env) (Locker, error) {
			locker, closePool, err := openLease(ctx, env)
			return leaseLocks{locker, closePool}, err
		})
}

func openLease(ctx context.Context, env *Env) (dblock.Locker, func() error, error) {
	if env.Kind == devdb.Postgres {
		pool, err := env.Postgres(ctx)
		if err != nil {
			return nil, nil, err
		}
		locker, err := pglock.NewLease(ctx, pool, pglock.LeaseOptions{})
		return locker, func() error { pool.Close(); return nil }, err
	}
	db, err := env.MySQL(ctx)
	if err != nil {
		return nil, nil, err
	}
	locker, err := mysqllock.NewLease(ctx, db, mysqllock.LeaseOptions{})
	return locker, db.Close, err
}

type leaseLocks struct {
	dblock.Locker
	closePool func() error
}

func (l leaseLocks) Lock(ctx context.Context, key string) (func(context.Context) error, error) {
	lock, err := l.Acquire(ctx, key)
	if err != nil {
		return nil, err
	}
	return lock.Release, nil
}

func (l leaseLocks) Close() error {
	return errors.Join(l.Locker.Close(context.Background()), l.closePool())
}
