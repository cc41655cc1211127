package pglock

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/pgfault"
)

// Release is one statement, whatever the size of the batch, and a cheaper one for a lone lease, unless its row is
// locked.
func (e *engine) Release(ctx context.Context, backs []lease.Back) ([]lease.Returned, error) {
	if len(backs) == 1 {
		freed, err := e.releaseOne(ctx, backs[0])
		if !pgfault.IsLocked(err) {
			return []lease.Returned{{Freed: freed}}, err
		}
	}
	return e.releaseMany(ctx, backs)
}

func (e *engine) releaseMany(ctx context.Context, backs []lease.Back) ([]lease.Returned, error) {
	keys, handles := make([]string, len(backs)), make([]pgtype.UUID, len(backs))
	for i, b := range backs {
		keys[i], handles[i] = b.Key, id(b.Handle)
	}
	rows, err := e.q.ReleaseLeases(ctx, e.on(e.pool), keys, handles, lockTimeout(ctx))
	if err != nil {
		return nil, err
	}
	found := make(map[string]lease.Returned, len(rows))
	for _, r := range rows {
		found[r.LeaseKey] = lease.Returned{Freed: r.Freed || found[r.LeaseKey].Freed, Stood: true}
	}
	returned := make([]lease.Returned, len(backs))
	for i, b := range backs {
		returned[i] = found[b.Key]
	}
	return returned, nil
}

// ExpireIn ends a lease d from now.
func (e *engine) ExpireIn(ctx context.Context, b lease.Back, d time.Duration) (bool, error) {
	n, err := e.q.ExpireLease(ctx, e.on(e.pool), pgdb.ExpireLeaseParams{
		HoldUs: micros(d), LeaseKey: b.Key, Token: b.Token, Handle: id(b.Handle), LockTimeout: lockTimeout(ctx),
	})
	return n == 1, err
}
