package pglock

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
)

// TakeOver is three statements, each in a snapshot of its own.
func (e *engine) TakeOver(ctx context.Context, by lease.By, a lease.Ask, gone member.ID) (token int64, err error) {
	on := e.on(e.pool)
	if err := e.q.Evict(ctx, on, id(gone)); err != nil {
		return 0, err
	}
	if stands, err := e.q.MemberStands(ctx, on, id(gone)); stands || err != nil {
		return 0, err
	}
	token, err = e.q.TakeLeaseOver(ctx, on, pgdb.TakeLeaseOverParams{
		Handle: id(a.Handle), Detached: a.Detached, HoldUs: micros(a.Hold), Label: a.Label, Data: a.Data,
		LeaseKey: a.Key, Gone: id(gone), MemberID: id(by.Member), Beat: by.Beat, LockTimeout: lockTimeout(ctx),
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return token, err
}
