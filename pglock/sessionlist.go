package pglock

import (
	"context"
	"strconv"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/postgres"
)

// SessionLocks lists the advisory locks of the pool's database that are called by one number,
// whatever holds them: session locks, transaction locks, and those of other programs. Keys are
// known of those that a SessionLocker has held for longer than a second. Schema is where dblock's
// tables are; default: the first schema on the search_path that has them.
//
// Errors: dblock.ErrInvalid, dblock.ErrSchema, dblock.ErrUnavailable.
func SessionLocks(ctx context.Context, pool *pgxpool.Pool, schema string) ([]dblock.SessionLock, error) {
	if err := postgres.CheckHost(pool, "schema", schema); err != nil {
		return nil, err
	}
	home, err := postgres.RequireSchema(ctx, pool, schema)
	if err != nil {
		return nil, err
	}
	var q pgdb.Queries
	rows, err := q.ListSessionLocks(ctx, home.On(pool))
	if err != nil {
		return nil, err
	}
	locks := make([]dblock.SessionLock, len(rows))
	for i, r := range rows {
		locks[i] = dblock.SessionLock{
			ID: strconv.FormatInt(r.LockID, 10), Namespace: r.Namespace, Key: r.LockKey, Waits: !r.Granted,
			Label: r.Application, Client: r.Client, Waiters: r.Waiters,
		}
		if r.Backend != 0 { // a prepared transaction has no session
			locks[i].Session = strconv.FormatInt(int64(r.Backend), 10)
		}
		if r.Shared {
			locks[i].Mode = dblock.ModeShared
		}
	}
	return locks, nil
}
