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

// AcquireShared is one statement, whatever the size of the batch.
func (e *engine) AcquireShared(ctx context.Context, by lease.By, asks []lease.Ask) ([]lease.Answer, error) {
	p := pgdb.AcquireSharedParams{MemberID: postgres.UUID(by.Member), Beat: by.Beat, LockTimeout: batchTimeout(ctx, len(asks))}
	for _, a := range asks {
		p.LeaseKeys, p.Handles = append(p.LeaseKeys, a.Key), append(p.Handles, postgres.UUID(a.Handle))
	}
	p.Gones = unlessNone(asks, func(a lease.Ask) (pgtype.UUID, bool) { return postgres.UUID(a.Gone), a.Gone != member.ID{} })
	p.Labels, p.Datas, p.HoldUs, p.Detached = details(asks)
	rows, err := e.q.AcquireShared(ctx, e.db, p)
	if err != nil {
		return nil, ofBatch(err, len(asks))
	}
	var found answered
	for _, r := range rows {
		found.note(r.LeaseKey, r.Handle, r.Granted, lease.Answer{Held: true, Holder: lease.Holder{
			Member: r.Holder.Bytes, Label: r.HolderLabel, Token: r.HolderToken, Dead: r.HolderDead, Remaining: max(0, postgres.FromMicros(r.RemainingUs)),
		}})
	}
	return found.answers(asks), nil
}

// Readers is one statement in a snapshot of its own.
func (e *engine) Readers(ctx context.Context, key string) ([]lease.Holder, error) {
	rows, err := e.q.SeeReaders(ctx, e.db, key)
	readers := make([]lease.Holder, len(rows))
	for i, r := range rows {
		readers[i] = lease.Holder{
			Member: r.MemberID.Bytes, Label: r.Label, Token: r.Token, Dead: r.Ended, Remaining: max(0, postgres.FromMicros(r.RemainingUs)),
		}
	}
	return readers, err
}

// Reap ends what dead members hold, and what has ended by itself.
func (e *engine) Reap(ctx context.Context, mode dblock.Mode, key string, gone []member.ID) (err error) {
	ids := make([]pgtype.UUID, len(gone))
	for i, m := range gone {
		ids[i] = postgres.UUID(m)
	}
	if mode == dblock.ModePermit {
		_, err = e.q.ReapPermits(ctx, e.db, key, ids, lockTimeout(ctx))
	} else {
		_, err = e.q.ReapReaders(ctx, e.db, key, ids, lockTimeout(ctx))
	}
	return err
}

// details lists what few asks have.
func details(asks []lease.Ask) (labels []string, datas [][]byte, holdUs []int64, detached []bool) {
	return unlessNone(asks, func(a lease.Ask) (string, bool) { return a.Label, a.Label != "" }),
		unlessNone(asks, func(a lease.Ask) ([]byte, bool) { return a.Data, a.Data != nil }),
		unlessNone(asks, func(a lease.Ask) (int64, bool) { return postgres.ToMicros(a.Hold), a.Hold != 0 }),
		unlessNone(asks, func(a lease.Ask) (bool, bool) { return a.Detached, a.Detached })
}
