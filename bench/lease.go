package bench

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
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
	db, err := env.database(ctx, env.Conns)
	if err != nil {
		return nil, err
	}
	l, err := on(db,
		func(pool *pgxpool.Pool) (dblock.Locker, error) {
			return pglock.NewLeaseLocker(ctx, pool, pglock.LeaseOptions{MaxBatch: maxBatch, MaxInFlight: maxInFlight})
		},
		func(db *sql.DB) (dblock.Locker, error) {
			db.SetMaxOpenConns(2*env.Conns + 1) // a heartbeat keeps one
			return mysqllock.NewLeaseLocker(ctx, db, mysqllock.LeaseOptions{MaxBatch: maxBatch, MaxInFlight: maxInFlight})
		})
	return lockerOn{l, db}, err
}

// lockerOn is a dblock.Locker, and the pool that was made for it.
type lockerOn struct {
	dblock.Locker
	db *Database
}

func (l lockerOn) Lock(ctx context.Context, key string) (func(context.Context) error, error) {
	lock, err := l.Acquire(ctx, key)
	if err != nil {
		return nil, err
	}
	return lock.Release, nil
}

func (l lockerOn) Close() error {
	return errors.Join(l.Locker.Close(context.Background()), l.db.Close())
}

// bare is the least that a lock in a table can be: a row for each key says whether it is held. The
// statements are what one would write by hand.
type bare struct{ *Database }

const (
	bareTablePostgres = "CREATE TABLE IF NOT EXISTS bare_lock (lock_key text PRIMARY KEY, token bigint NOT NULL, held int NOT NULL) WITH (fillfactor = 50)"
	bareTableMySQL    = "CREATE TABLE IF NOT EXISTS bare_lock (lock_key VARBINARY(512) PRIMARY KEY, token BIGINT NOT NULL, held TINYINT NOT NULL)"

	bareLock = "UPDATE bare_lock SET held = 1, token = token + 1 WHERE lock_key = $1 AND held = 0"
	bareMake = "INSERT INTO bare_lock VALUES ($1, 1, 1)"
	bareFree = "UPDATE bare_lock SET held = 0 WHERE lock_key = $1 AND held = 1"
)

var errBareLost = errors.New("another client holds the key of one client")

func openBare(ctx context.Context, env *Env) (Locker, error) {
	db, err := env.database(ctx, env.Conns)
	if err != nil {
		return nil, err
	}
	if _, err := db.Exec(ctx, pick(env.Kind, bareTablePostgres, bareTableMySQL)); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return bare{db}, nil
}

func (b bare) Lock(ctx context.Context, key string) (func(context.Context) error, error) {
	rows, err := b.Exec(ctx, bareLock, key)
	if err == nil && rows == 0 {
		_, err = b.Exec(ctx, bareMake, key)
	}
	return func(ctx context.Context) error {
		rows, err := b.Exec(ctx, bareFree, key)
		if err == nil && rows != 1 {
			err = errBareLost
		}
		return err
	}, err
}
