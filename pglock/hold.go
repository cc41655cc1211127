package pglock

import (
	"context"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/postgres"
)

// ExpireIn ends all leases of one acquisition so long from now, in one statement.
func (d *leaseDriver) ExpireIn(ctx context.Context, backs []lease.ReleaseRequest, in time.Duration) (bool, error) {
	b := backs[0]
	p := pgdb.ExpireSharedParams{
		HoldUs: postgres.ToMicros(in), LeaseKey: b.Key, Token: b.Token, Handle: postgres.UUID(b.Handle), LockTimeout: lockTimeout(ctx),
	}
	var n int64
	var err error
	switch b.Mode {
	case dblock.ModeShared:
		n, err = d.q.ExpireShared(ctx, d.db, p)
	case dblock.ModePermit:
		n, err = d.q.ExpirePermits(ctx, d.db, pgdb.ExpirePermitsParams(p))
	default:
		keys, _ := keysAndHandles(backs)
		n, err = d.q.ExpireLeases(ctx, d.db, pgdb.ExpireLeasesParams{
			LeaseKeys: keys, Handle: p.Handle, LockTimeout: p.LockTimeout, HoldUs: p.HoldUs, Wanted: int64(len(keys)),
		})
	}
	return n > 0, err
}

// Holding reports which acquisitions still hold their leases.
func (d *leaseDriver) Holding(ctx context.Context, backs []lease.ReleaseRequest) ([]bool, error) {
	keys, handles := keysAndHandles(backs)
	var rows []pgdb.HoldingLeasesRow
	var err error
	switch backs[0].Mode {
	case dblock.ModeShared:
		readers, failed := d.q.HoldingReaders(ctx, d.db, keys, handles)
		rows, err = alike(readers, func(r pgdb.HoldingReadersRow) pgdb.HoldingLeasesRow { return pgdb.HoldingLeasesRow(r) }), failed
	case dblock.ModePermit:
		permits, failed := d.q.HoldingPermits(ctx, d.db, keys, handles)
		rows, err = alike(permits, func(r pgdb.HoldingPermitsRow) pgdb.HoldingLeasesRow { return pgdb.HoldingLeasesRow(r) }), failed
	default:
		rows, err = d.q.HoldingLeases(ctx, d.db, keys)
	}
	if err != nil {
		return nil, err
	}
	held := make(map[handled]bool, len(rows))
	for _, r := range rows {
		held[handled{r.LeaseKey, r.Handle}] = true
	}
	ours := make([]bool, len(backs))
	for i, b := range backs {
		ours[i] = held[handled{b.Key, postgres.UUID(b.Handle)}]
	}
	return ours, nil
}
