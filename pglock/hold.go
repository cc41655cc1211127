package pglock

import (
	"context"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/internal/postgres"
)

const (
	expireWait  = "10ms"                 // how long ExpireIn waits for a locked row with a connection
	expirePause = 250 * time.Millisecond // how long at most it then waits without
)

// ExpireIn ends all leases of one acquisition so long from now. While a guarded transaction has a
// row locked, it tries again: many that wait so use few connections. Its last try begins while
// there is time for the reply.
func (d *leaseDriver) ExpireIn(ctx context.Context, backs []lease.ReleaseRequest, in time.Duration) (ours bool, err error) {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, expirePause) {
		ours, err = d.expireOnce(ctx, backs, in)
		if !postgres.IsLocked(err) {
			return ours, err
		}
		deadline, has := ctx.Deadline()
		if has && time.Until(deadline) < 3*expirePause || pace.Sleep(ctx, pace.Jitter(pause)) != nil {
			return ours, err
		}
	}
}

func (d *leaseDriver) expireOnce(ctx context.Context, backs []lease.ReleaseRequest, in time.Duration) (bool, error) {
	b := backs[0]
	p := pgdb.ExpireSharedParams{
		HoldUs: postgres.ToMicros(in), LeaseKey: b.Key, Token: b.Token, Handle: postgres.UUID(b.Handle), LockTimeout: expireWait,
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
