package pglock

import (
	"context"

	"github.com/dblock-go/dblock/internal/lease"
)

// List reads what is held.
func (e *engine) List(ctx context.Context) ([]lease.Listed, error) {
	rows, err := e.q.ListLeases(ctx, e.on(e.pool))
	if err != nil {
		return nil, err
	}
	listed := make([]lease.Listed, len(rows))
	for i, r := range rows {
		listed[i] = lease.Listed{
			Key: r.LeaseKey, Token: r.Token, Handle: r.Handle.Bytes, MemberLabel: r.MemberLabel,
			Holder: lease.Holder{Member: r.MemberID.Bytes, Label: r.Label, Token: r.Token, Remaining: duration(r.RemainingUs)},
			Age:    duration(r.AgeUs), Waiters: r.Waiters,
		}
	}
	return listed, nil
}
