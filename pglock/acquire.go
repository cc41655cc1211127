package pglock

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
)

// Acquire is one statement, whatever the size of the batch; for a lone ask a cheaper one comes first, which is all
// where it is granted.
func (e *engine) Acquire(ctx context.Context, by lease.By, asks []lease.Ask) ([]lease.Answer, error) {
	if len(asks) == 1 && !asks[0].Contended && !asks[0].InTurn {
		token, err := e.acquireOne(ctx, by, asks[0])
		if token != 0 || err != nil {
			return []lease.Answer{{Token: token}}, err
		}
	}
	return e.acquireMany(ctx, by, asks, false)
}

func (e *engine) acquireMany(ctx context.Context, by lease.By, asks []lease.Ask, together bool) ([]lease.Answer, error) {
	p := pgdb.AcquireLeasesParams{MemberID: id(by.Member), Beat: by.Beat, LockTimeout: lockTimeout(ctx), Together: together, InTurn: asks[0].InTurn}
	for _, a := range asks {
		p.LeaseKeys = append(p.LeaseKeys, a.Key)
		p.Handles = append(p.Handles, id(a.Handle))
	}
	p.Insteads = unlessNone(asks, func(a lease.Ask) (pgtype.UUID, bool) { return id(a.Instead), a.Instead != lease.Handle{} })
	p.Gones = unlessNone(asks, func(a lease.Ask) (pgtype.UUID, bool) { return id(a.Gone), a.Gone != member.ID{} })
	p.Overs = unlessNone(asks, func(a lease.Ask) (bool, bool) { return a.Over, a.Over })
	p.Labels, p.Datas, p.HoldUs, p.Detached = details(asks)
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
		case found[r.LeaseKey].Token != 0:
		case r.Shared:
			found[r.LeaseKey] = lease.Answer{Shared: true}
		default:
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

// unlessNone lists something of each ask; nothing where no ask has it, which is the usual case and costs least.
func unlessNone[T any](asks []lease.Ask, of func(lease.Ask) (T, bool)) []T {
	if !slices.ContainsFunc(asks, func(a lease.Ask) bool { _, has := of(a); return has }) {
		return []T{}
	}
	list := make([]T, len(asks))
	for i, a := range asks {
		list[i], _ = of(a)
	}
	return list
}
