package pglock

import (
	"context"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/lease"
)

// Acquire is one statement, whatever the size of the batch; for a lone ask a cheaper one comes first, which is all
// where it is granted.
func (e *engine) Acquire(ctx context.Context, by lease.By, asks []lease.Ask) ([]lease.Answer, error) {
	if len(asks) == 1 && !asks[0].Contended {
		token, err := e.acquireOne(ctx, by, asks[0])
		if token != 0 || err != nil {
			return []lease.Answer{{Token: token}}, err
		}
	}
	return e.acquireMany(ctx, by, asks)
}

func (e *engine) acquireMany(ctx context.Context, by lease.By, asks []lease.Ask) ([]lease.Answer, error) {
	p := pgdb.AcquireLeasesParams{MemberID: id(by.Member), Beat: by.Beat, LockTimeout: lockTimeout(ctx)}
	for _, a := range asks {
		p.LeaseKeys = append(p.LeaseKeys, a.Key)
		p.Handles = append(p.Handles, id(a.Handle))
		p.Insteads = append(p.Insteads, id(a.Instead))
		p.Gones = append(p.Gones, id(a.Gone))
		p.Labels = append(p.Labels, a.Label)
		p.Datas = append(p.Datas, a.Data)
		p.HoldUs = append(p.HoldUs, micros(a.Hold))
		p.Detached = append(p.Detached, a.Detached)
	}
	rows, err := e.q.AcquireLeases(ctx, e.on(e.pool), p)
	if err != nil {
		return nil, err
	}
	gone := false
	found := make(map[string]lease.Answer, len(rows))
	for _, r := range rows {
		switch {
		case r.LeaseKey == "":
			gone = true
		case r.Granted != 0:
			found[r.LeaseKey] = lease.Answer{Token: r.Granted}
		case found[r.LeaseKey].Token == 0:
			found[r.LeaseKey] = lease.Answer{Held: true, Holder: lease.Holder{
				Member: r.Holder.Bytes, Label: r.HolderLabel, Token: r.HolderToken, Dead: r.HolderDead,
				Remaining: max(0, duration(r.RemainingUs)),
			}}
		}
	}
	answers := make([]lease.Answer, len(asks))
	for i, a := range asks {
		answers[i] = found[a.Key]
		answers[i].MemberGone = gone
	}
	return answers, nil
}
