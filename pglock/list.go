package pglock

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// List reads what is held, of all keys or of one.
func (d *leaseDriver) List(ctx context.Context, key string) ([]lease.HeldLease, error) {
	if key != "" {
		return d.holdersOf(ctx, key)
	}
	rows, err := d.q.ListHeld(ctx, d.db)
	if err != nil {
		return nil, err
	}
	listed := make([]lease.HeldLease, len(rows))
	for i, r := range rows {
		listed[i] = lease.HeldLease{
			Key: r.LeaseKey, Mode: dblock.Mode(r.Mode), Permits: int(r.Permits), Limit: int(r.LimitedTo),
			Token: r.Token, Handle: r.Handle.Bytes, MemberLabel: r.MemberLabel,
			Holder: lease.Holder{Member: r.MemberID.Bytes, Label: r.Label, Token: r.Token, Remaining: postgres.FromMicros(r.RemainingUs)},
			Age:    postgres.FromMicros(r.AgeUs), Waiters: r.Waiters,
		}
	}
	return listed, nil
}

// holdersOf reads the acquisitions that hold one key.
func (d *leaseDriver) holdersOf(ctx context.Context, key string) ([]lease.HeldLease, error) {
	rows, err := d.q.HoldersOfKey(ctx, d.db, key)
	if err != nil {
		return nil, err
	}
	holders := make([]lease.HeldLease, len(rows))
	for i, r := range rows {
		holders[i] = lease.HeldLease{
			Key: key, Mode: dblock.Mode(r.Mode), Token: r.Token, Handle: r.Handle.Bytes, MemberLabel: r.MemberLabel,
			Holder: lease.Holder{Member: r.MemberID.Bytes, Label: r.Label, Token: r.Token},
		}
	}
	return holders, nil
}

// HeldBy reads what stands under a member.
func (d *leaseDriver) HeldBy(ctx context.Context, m member.ID) ([]lease.ReleaseRequest, error) {
	rows, err := d.q.HeldByMember(ctx, d.db, postgres.UUID(m))
	if err != nil {
		return nil, err
	}
	held := make([]lease.ReleaseRequest, len(rows))
	for i, r := range rows {
		held[i] = lease.ReleaseRequest{Key: r.LeaseKey, Handle: r.Handle.Bytes, Mode: dblock.Mode(r.Mode)}
	}
	return held, nil
}

// Get reads one lease.
func (d *leaseDriver) Get(ctx context.Context, key string) (l lease.HeldLease, held bool, err error) {
	if err := d.gets.take(ctx); err != nil {
		return l, false, err
	}
	defer d.gets.give()
	r, err := d.q.GetLease(ctx, d.db, key)
	if errors.Is(err, pgx.ErrNoRows) {
		return d.getShared(ctx, key)
	}
	if err != nil {
		return l, false, sqlerr.Unwritten(err)
	}
	return lease.HeldLease{
		Key: r.LeaseKey, Token: r.Token, Handle: r.Handle.Bytes, MemberLabel: r.MemberLabel,
		Holder: lease.Holder{Member: r.MemberID.Bytes, Label: r.Label, Token: r.Token, Remaining: postgres.FromMicros(r.RemainingUs)},
		Age:    postgres.FromMicros(r.AgeUs), Waiters: r.Waiters, Data: r.Data,
	}, true, nil
}

// getShared reads a holder of a key that none holds exclusively, or else the key's last token.
func (d *leaseDriver) getShared(ctx context.Context, key string) (l lease.HeldLease, held bool, err error) {
	r, err := d.q.GetSharedOrPermits(ctx, d.db, key)
	switch {
	case err == nil:
		return lease.HeldLease{
			Key: key, Mode: dblock.Mode(r.Mode), Permits: int(r.Permits), Limit: int(r.LimitedTo),
			Token: r.Token, Handle: r.Handle.Bytes, MemberLabel: r.MemberLabel,
			Holder: lease.Holder{Member: r.MemberID.Bytes, Label: r.Label, Token: r.Token, Remaining: postgres.FromMicros(r.RemainingUs)},
			Age:    postgres.FromMicros(r.AgeUs), Waiters: r.Waiters, Data: r.Data,
		}, true, nil
	case !errors.Is(err, pgx.ErrNoRows):
		return l, false, sqlerr.Unwritten(err)
	}
	l.Key = key
	if l.Token, err = d.q.LastToken(ctx, d.db, key); errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return l, false, sqlerr.Unwritten(err)
}
