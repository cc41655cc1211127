package pglock

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/postgres"
)

// Acquire is one statement, whatever the size of the batch. A single ask tries a cheaper statement first.
func (e *engine) Acquire(ctx context.Context, by lease.By, asks []lease.Ask) ([]lease.Answer, error) {
	if err := lease.CheckKeys(asks); err != nil {
		return nil, err
	}
	if len(asks) == 1 && !asks[0].Contended && !asks[0].InTurn {
		answer, err := e.acquireOne(ctx, by, asks[0])
		if answer.Token != 0 || err != nil {
			return []lease.Answer{answer}, err
		}
	}
	return e.acquireMany(ctx, by, asks, false)
}

func (e *engine) acquireMany(ctx context.Context, by lease.By, asks []lease.Ask, together bool) ([]lease.Answer, error) {
	p := pgdb.AcquireLeasesParams{MemberID: postgres.UUID(by.Member), Beat: by.Beat, LockTimeout: batchTimeout(ctx, len(asks)), Together: together, InTurn: asks[0].InTurn}
	for _, a := range asks {
		p.LeaseKeys = append(p.LeaseKeys, a.Key)
		p.Handles = append(p.Handles, postgres.UUID(a.Handle))
	}
	p.Insteads = unlessNone(asks, func(a lease.Ask) (pgtype.UUID, bool) { return postgres.UUID(a.Instead), a.Instead != lease.Handle{} })
	p.Gones = unlessNone(asks, func(a lease.Ask) (pgtype.UUID, bool) { return postgres.UUID(a.Gone), a.Gone != member.ID{} })
	p.Overs = unlessNone(asks, func(a lease.Ask) (bool, bool) { return a.Over, a.Over })
	p.Labels, p.Datas, p.HoldUs, p.Detached = details(asks)
	rows, err := e.q.AcquireLeases(ctx, e.db, p)
	if err != nil && !together {
		err = ofBatch(err, len(asks))
	}
	if err != nil {
		return nil, err
	}
	var found answered
	for _, r := range rows {
		refused := lease.Answer{Shared: r.Shared}
		if !r.Shared {
			refused = lease.Answer{Held: true, Holder: lease.Holder{
				Member: r.Holder.Bytes, Label: r.HolderLabel, Token: r.HolderToken, Dead: r.HolderDead,
				Remaining: max(0, postgres.FromMicros(r.RemainingUs)),
			}}
		}
		found.note(r.LeaseKey, r.Handle, r.Granted, refused)
	}
	return found.answers(asks), nil
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

// answered is what a statement says of a batch: the token of each acquisition that it granted, and by key why the others
// were refused.
type answered struct {
	granted map[acquisition]int64
	refused map[string]lease.Answer
	gone    bool
}

// acquisition is a row's key and handle. The acquisitions of a set have one handle.
type acquisition struct {
	key    string
	handle lease.Handle
}

// note takes in one row. A row without a key says that the member is gone.
func (b *answered) note(key string, handle pgtype.UUID, granted int64, refused lease.Answer) {
	if b.granted == nil {
		b.granted, b.refused = make(map[acquisition]int64), make(map[string]lease.Answer)
	}
	switch {
	case key == "":
		b.gone = true
	case granted != 0:
		b.granted[acquisition{key, handle.Bytes}] = granted
	default:
		refused.Dead = append(refused.Dead, b.refused[key].Dead...)
		b.refused[key] = refused
	}
}

// answers returns the answer to each ask. It grants only what the statement returned under the ask's handle.
func (b *answered) answers(asks []lease.Ask) []lease.Answer {
	answers := make([]lease.Answer, len(asks))
	for i, a := range asks {
		if token := b.granted[acquisition{a.Key, a.Handle}]; token != 0 {
			answers[i] = lease.Answer{Token: token, Handle: a.Handle}
			continue
		}
		answers[i] = b.refused[a.Key]
		answers[i].MemberGone = b.gone
	}
	return answers
}
