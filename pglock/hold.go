package pglock

import (
	"context"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/postgres"
)

// ExpireIn ends all leases of one acquisition d from now, in one statement.
func (e *engine) ExpireIn(ctx context.Context, backs []lease.Back, d time.Duration) (bool, error) {
	b := backs[0]
	p := pgdb.ExpireSharedParams{
		HoldUs: postgres.ToMicros(d), LeaseKey: b.Key, Token: b.Token, Handle: postgres.UUID(b.Handle), LockTimeout: lockTimeout(ctx),
	}
	var n int64
	var err error
	switch b.Mode {
	case dblock.ModeShared:
		n, err = e.q.ExpireShared(ctx, e.db, p)
	case dblock.ModePermit:
		n, err = e.q.ExpirePermits(ctx, e.db, pgdb.ExpirePermitsParams(p))
	default:
		keys, _ := keysAndHandles(backs)
		n, err = e.q.ExpireLeases(ctx, e.db, pgdb.ExpireLeasesParams{
			LeaseKeys: keys, Handle: p.Handle, LockTimeout: p.LockTimeout, HoldUs: p.HoldUs, Wanted: int64(len(keys)),
		})
	}
	return n > 0, err
}

// Holding tells which acquisitions are still ours.
func (e *engine) Holding(ctx context.Context, backs []lease.Back) ([]bool, error) {
	keys, handles := keysAndHandles(backs)
	var rows []pgdb.HoldingLeasesRow
	var err error
	switch backs[0].Mode {
	case dblock.ModeShared:
		readers, failed := e.q.HoldingReaders(ctx, e.db, keys, handles)
		rows, err = alike(readers, func(r pgdb.HoldingReadersRow) pgdb.HoldingLeasesRow { return pgdb.HoldingLeasesRow(r) }), failed
	case dblock.ModePermit:
		permits, failed := e.q.HoldingPermits(ctx, e.db, keys, handles)
		rows, err = alike(permits, func(r pgdb.HoldingPermitsRow) pgdb.HoldingLeasesRow { return pgdb.HoldingLeasesRow(r) }), failed
	default:
		rows, err = e.q.HoldingLeases(ctx, e.db, keys)
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
