package pglock

import (
	"context"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/postgres"
)

// acquireShared is one statement, whatever the size of the batch.
func (d *leaseDriver) acquireShared(ctx context.Context, by lease.By, asks []lease.AcquireRequest) ([]lease.AcquireResult, error) {
	p := pgdb.AcquireSharedParams{MemberID: postgres.UUID(by.Member), Beat: by.Heartbeat, LockTimeout: batchTimeout(ctx, len(asks))}
	for _, a := range asks {
		p.LeaseKeys, p.Handles = append(p.LeaseKeys, a.Key), append(p.Handles, postgres.UUID(a.Handle))
	}
	p.Gones = unlessNone(asks, func(a lease.AcquireRequest) (pgtype.UUID, bool) {
		return postgres.UUID(a.DeadMember), a.DeadMember != member.ID{}
	})
	p.Labels, p.Datas, p.HoldUs, p.Detached = details(asks)
	rows, err := d.q.AcquireShared(ctx, d.db, p)
	if err != nil {
		return nil, ofBatch(err, len(asks))
	}
	var found answered
	for _, r := range rows {
		found.note(r.LeaseKey, r.Handle, r.Granted, lease.AcquireResult{Held: true, Holder: lease.Holder{
			Member: r.Holder.Bytes, Label: r.HolderLabel, Token: r.HolderToken, Dead: r.HolderDead, Remaining: max(0, postgres.FromMicros(r.RemainingUs)),
		}})
	}
	return found.results(asks), nil
}

// Readers is one statement in a snapshot of its own.
func (d *leaseDriver) Readers(ctx context.Context, key string) ([]lease.Holder, error) {
	rows, err := d.q.ReadReaders(ctx, d.db, key)
	readers := make([]lease.Holder, len(rows))
	for i, r := range rows {
		readers[i] = lease.Holder{
			Member: r.MemberID.Bytes, Label: r.Label, Token: r.Token, Dead: r.Ended, Remaining: max(0, postgres.FromMicros(r.RemainingUs)),
		}
	}
	return readers, err
}

// Reap ends what dead members hold, and what has ended by itself.
func (d *leaseDriver) Reap(ctx context.Context, mode dblock.Mode, key string, gone []member.ID) (err error) {
	ids := make([]pgtype.UUID, len(gone))
	for i, m := range gone {
		ids[i] = postgres.UUID(m)
	}
	if mode == dblock.ModePermit {
		_, err = d.q.ReapPermits(ctx, d.db, key, ids, lockTimeout(ctx))
	} else {
		_, err = d.q.ReapReaders(ctx, d.db, key, ids, lockTimeout(ctx))
	}
	return err
}

// details lists what few asks have.
func details(asks []lease.AcquireRequest) (labels []string, datas [][]byte, holdUs []int64, detached []bool) {
	return unlessNone(asks, func(a lease.AcquireRequest) (string, bool) { return a.Label, a.Label != "" }),
		unlessNone(asks, func(a lease.AcquireRequest) ([]byte, bool) { return a.Data, a.Data != nil }),
		unlessNone(asks, func(a lease.AcquireRequest) (int64, bool) { return postgres.ToMicros(a.Hold), a.Hold != 0 }),
		unlessNone(asks, func(a lease.AcquireRequest) (bool, bool) { return a.Detached, a.Detached })
}
