package pglock

import (
	"context"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/postgres"
)

// acquirePermits is one statement, whatever the size of the batch.
func (d *leaseDriver) acquirePermits(ctx context.Context, by lease.By, asks []lease.AcquireRequest) ([]lease.AcquireResult, error) {
	p := pgdb.AcquirePermitsParams{MemberID: postgres.UUID(by.Member), Beat: by.Heartbeat, LockTimeout: lockTimeout(ctx)}
	for _, a := range asks {
		p.LeaseKeys, p.Handles = append(p.LeaseKeys, a.Key), append(p.Handles, postgres.UUID(a.Handle))
		p.Permits, p.Limits = append(p.Permits, int32(a.Permits)), append(p.Limits, int32(a.Limit)) //nolint:gosec // at most dblock.MaxPermits
	}
	p.Labels, p.Datas, p.HoldUs, p.Detached = details(asks)
	rows, err := d.q.AcquirePermits(ctx, d.db, p)
	if err != nil {
		return nil, err
	}
	var found answered
	for _, r := range rows {
		refused := lease.AcquireResult{Stored: int(r.Stored), Usable: int(r.Usable), Held: r.HolderToken != 0, Holder: lease.Holder{
			Member: r.Holder.Bytes, Label: r.HolderLabel, Token: r.HolderToken, Remaining: max(0, postgres.FromMicros(r.RemainingUs)),
		}}
		if r.HolderDead {
			refused.Dead = []member.ID{r.Holder.Bytes}
		}
		found.note(r.LeaseKey, r.Handle, r.Granted, refused)
	}
	results := found.results(asks)
	for i := range results {
		results[i].Held = results[i].Held && results[i].Usable < asks[i].Permits // else what is free was locked for a moment
	}
	return results, nil
}

// Make is one statement for leases, and two for a semaphore: the permits stand before their number
// does.
func (d *leaseDriver) Make(ctx context.Context, keys []string, limit int) error {
	if limit == 0 {
		return d.q.InsertFreeLeases(ctx, d.db, keys, batchWait)
	}
	key := keys[0]
	if err := d.q.InsertPermits(ctx, d.db, key, int32(limit), batchWait); err != nil { //nolint:gosec // at most dblock.MaxPermits
		return err
	}
	return d.q.InsertSemaphore(ctx, d.db, key, int32(limit), batchWait) //nolint:gosec // as above
}

// SetPermits is two statements, as Make is.
func (d *leaseDriver) SetPermits(ctx context.Context, key string, limit int) error {
	if err := d.q.InsertPermits(ctx, d.db, key, int32(limit), lockTimeout(ctx)); err != nil { //nolint:gosec // at most dblock.MaxPermits
		return err
	}
	_, err := notifying(d, func(on pgdb.DBTX, notify bool) (string, error) {
		return d.q.SetPermits(ctx, on, notify, key, int32(limit)) //nolint:gosec // as above
	})
	return err
}
