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

// List reads what is held.
func (e *engine) List(ctx context.Context) ([]lease.Listed, error) {
	rows, err := e.q.ListHeld(ctx, e.db)
	if err != nil {
		return nil, err
	}
	listed := make([]lease.Listed, len(rows))
	for i, r := range rows {
		listed[i] = lease.Listed{
			Key: r.LeaseKey, Mode: dblock.Mode(r.Mode), Permits: int(r.Permits), Limit: int(r.LimitedTo),
			Token: r.Token, Handle: r.Handle.Bytes, MemberLabel: r.MemberLabel,
			Holder: lease.Holder{Member: r.MemberID.Bytes, Label: r.Label, Token: r.Token, Remaining: postgres.FromMicros(r.RemainingUs)},
			Age:    postgres.FromMicros(r.AgeUs), Waiters: r.Waiters,
		}
	}
	return listed, nil
}

// HoldersOf reads the acquisitions that hold one key.
func (e *engine) HoldersOf(ctx context.Context, key string) ([]lease.Listed, error) {
	rows, err := e.q.HoldersOfKey(ctx, e.db, key)
	if err != nil {
		return nil, err
	}
	holders := make([]lease.Listed, len(rows))
	for i, r := range rows {
		holders[i] = lease.Listed{
			Key: key, Mode: dblock.Mode(r.Mode), Token: r.Token, Handle: r.Handle.Bytes, MemberLabel: r.MemberLabel,
			Holder: lease.Holder{Member: r.MemberID.Bytes, Label: r.Label, Token: r.Token},
		}
	}
	return holders, nil
}

// HeldBy reads what stands under a member.
func (e *engine) HeldBy(ctx context.Context, m member.ID) ([]lease.Back, error) {
	rows, err := e.q.HeldByMember(ctx, e.db, postgres.UUID(m))
	if err != nil {
		return nil, err
	}
	held := make([]lease.Back, len(rows))
	for i, r := range rows {
		held[i] = lease.Back{Key: r.LeaseKey, Handle: r.Handle.Bytes, Mode: dblock.Mode(r.Mode)}
	}
	return held, nil
}

// Look reads one lease.
func (e *engine) Look(ctx context.Context, key string) (l lease.Listed, held bool, err error) {
	r, err := e.q.LookAtLease(ctx, e.db, key)
	if errors.Is(err, pgx.ErrNoRows) {
		return e.lookBeside(ctx, key)
	}
	if err != nil {
		return l, false, sqlerr.Unwritten(err)
	}
	return lease.Listed{
		Key: r.LeaseKey, Token: r.Token, Handle: r.Handle.Bytes, MemberLabel: r.MemberLabel,
		Holder: lease.Holder{Member: r.MemberID.Bytes, Label: r.Label, Token: r.Token, Remaining: postgres.FromMicros(r.RemainingUs)},
		Age:    postgres.FromMicros(r.AgeUs), Waiters: r.Waiters, Data: r.Data,
	}, true, nil
}

// lookBeside reads a holder of a key that none holds exclusively, or else the key's last token.
func (e *engine) lookBeside(ctx context.Context, key string) (l lease.Listed, held bool, err error) {
	r, err := e.q.LookAtSharedOrPermits(ctx, e.db, key)
	switch {
	case err == nil:
		return lease.Listed{
			Key: key, Mode: dblock.Mode(r.Mode), Permits: int(r.Permits), Limit: int(r.LimitedTo),
			Token: r.Token, Handle: r.Handle.Bytes, MemberLabel: r.MemberLabel,
			Holder: lease.Holder{Member: r.MemberID.Bytes, Label: r.Label, Token: r.Token, Remaining: postgres.FromMicros(r.RemainingUs)},
			Age:    postgres.FromMicros(r.AgeUs), Waiters: r.Waiters, Data: r.Data,
		}, true, nil
	case !errors.Is(err, pgx.ErrNoRows):
		return l, false, sqlerr.Unwritten(err)
	}
	l.Key = key
	if l.Token, err = e.q.LastToken(ctx, e.db, key); errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return l, false, sqlerr.Unwritten(err)
}
