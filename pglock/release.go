package pglock

import (
	"context"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/postgres"
)

// Release is one statement, whatever the size of the batch, and a cheaper one for a single lease,
// unless its row is locked.
func (d *leaseDriver) Release(ctx context.Context, b lease.ReleaseBatch) ([]lease.ReleaseResult, error) {
	backs := b.Requests
	switch b.Kind {
	case lease.KindSet:
		return d.releaseMany(ctx, backs, true)
	case lease.KindFair:
		return d.passOn(ctx, backs)
	}
	if len(backs) == 1 && backs[0].Mode == dblock.ModeExclusive {
		freed, err := d.releaseOne(ctx, backs[0])
		if !postgres.IsLocked(err) {
			return []lease.ReleaseResult{{Freed: freed}}, err
		}
	}
	return d.releaseMany(ctx, backs, false)
}

// handled names one acquisition of a key.
type handled struct {
	key    string
	handle pgtype.UUID
}

func (d *leaseDriver) releaseMany(ctx context.Context, backs []lease.ReleaseRequest, together bool) ([]lease.ReleaseResult, error) {
	keys, handles := keysAndHandles(backs)
	rows, err := notifying(d, func(on pgdb.DBTX, notify bool) ([]pgdb.ReleaseSharedRow, error) {
		return d.freed(ctx, on, backs[0].Mode, together, pgdb.ReleaseSharedParams{
			LeaseKeys: keys, Handles: handles, LockTimeout: lockTimeout(ctx), Notify: notify,
		})
	})
	if err != nil {
		return nil, err
	}
	return releaseResults(backs, rows), nil
}

func keysAndHandles(backs []lease.ReleaseRequest) (keys []string, handles []pgtype.UUID) {
	for _, b := range backs {
		keys, handles = append(keys, b.Key), append(handles, postgres.UUID(b.Handle))
	}
	return keys, handles
}

// releaseResults says what became of each.
func releaseResults(backs []lease.ReleaseRequest, rows []pgdb.ReleaseSharedRow) []lease.ReleaseResult {
	found := make(map[handled]lease.ReleaseResult, len(rows))
	for _, r := range rows {
		of := handled{r.LeaseKey, r.Handle}
		found[of] = lease.ReleaseResult{Freed: r.Freed || found[of].Freed, Held: true}
	}
	results := make([]lease.ReleaseResult, len(backs))
	for i, b := range backs {
		results[i] = found[handled{b.Key, postgres.UUID(b.Handle)}]
	}
	return results
}

// freed runs the statement for a mode.
func (d *leaseDriver) freed(
	ctx context.Context, on pgdb.DBTX, mode dblock.Mode, together bool, p pgdb.ReleaseSharedParams,
) ([]pgdb.ReleaseSharedRow, error) {
	switch mode {
	case dblock.ModeShared:
		return d.q.ReleaseShared(ctx, on, p)
	case dblock.ModePermit:
		rows, err := d.q.ReleasePermits(ctx, on, pgdb.ReleasePermitsParams(p))
		return alike(rows, func(r pgdb.ReleasePermitsRow) pgdb.ReleaseSharedRow { return pgdb.ReleaseSharedRow(r) }), err
	default:
		rows, err := d.q.ReleaseLeases(ctx, on, pgdb.ReleaseLeasesParams{
			LeaseKeys: p.LeaseKeys, Handles: p.Handles, LockTimeout: p.LockTimeout, Notify: p.Notify, Together: together,
		})
		return alike(rows, func(r pgdb.ReleaseLeasesRow) pgdb.ReleaseSharedRow { return pgdb.ReleaseSharedRow(r) }), err
	}
}

// alike makes rows of one statement those of another one.
func alike[A, B any](rows []A, as func(A) B) []B {
	list := make([]B, len(rows))
	for i, r := range rows {
		list[i] = as(r)
	}
	return list
}
