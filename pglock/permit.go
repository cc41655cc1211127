package pglock

import (
	"context"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/postgres"
)

// AcquirePermits is one statement, whatever the size of the batch.
func (e *engine) AcquirePermits(ctx context.Context, by lease.By, asks []lease.Ask) ([]lease.Answer, error) {
	p := pgdb.AcquirePermitsParams{MemberID: postgres.UUID(by.Member), Beat: by.Beat, LockTimeout: lockTimeout(ctx)}
	for _, a := range asks {
		p.LeaseKeys, p.Handles = append(p.LeaseKeys, a.Key), append(p.Handles, postgres.UUID(a.Handle))
		p.Permits, p.Limits = append(p.Permits, int32(a.Permits)), append(p.Limits, int32(a.Limit)) //nolint:gosec // at most dblock.MaxPermits
	}
	p.Labels, p.Datas, p.HoldUs, p.Detached = details(asks)
	rows, err := e.q.AcquirePermits(ctx, e.db, p)
	if err != nil {
		return nil, err
	}
	var found answered
	for _, r := range rows {
		refused := lease.Answer{Stored: int(r.Stored), Usable: int(r.Usable), Held: r.HolderToken != 0, Holder: lease.Holder{
			Member: r.Holder.Bytes, Label: r.HolderLabel, Token: r.HolderToken, Remaining: max(0, postgres.FromMicros(r.RemainingUs)),
		}}
		if r.HolderDead {
			refused.Dead = []member.ID{r.Holder.Bytes}
		}
		found.note(r.LeaseKey, r.Handle, r.Granted, refused)
	}
	answers := found.answers(asks)
	for i := range answers {
		answers[i].Held = answers[i].Held && answers[i].Usable < asks[i].Permits // else what is free was locked for a moment
	}
	return answers, nil
}

// MakeSemaphore is two statements: the permits stand before their number does.
func (e *engine) MakeSemaphore(ctx context.Context, key string, limit int) error {
	if err := e.q.MakePermits(ctx, e.db, key, int32(limit)); err != nil { //nolint:gosec // at most dblock.MaxPermits
		return err
	}
	return e.q.MakeSemaphore(ctx, e.db, key, int32(limit)) //nolint:gosec // as above
}

// SetPermits is two statements, as MakeSemaphore is.
func (e *engine) SetPermits(ctx context.Context, key string, limit int) error {
	if err := e.q.MakePermits(ctx, e.db, key, int32(limit)); err != nil { //nolint:gosec // at most dblock.MaxPermits
		return err
	}
	_, err := notifying(e, func(on pgdb.DBTX, notify bool) (string, error) {
		return e.q.SetPermits(ctx, on, notify, key, int32(limit)) //nolint:gosec // as above
	})
	return err
}
