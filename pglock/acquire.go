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

// Acquire is one statement, whatever the size of the batch.
func (d *leaseDriver) Acquire(ctx context.Context, b lease.AcquireBatch) ([]lease.AcquireResult, error) {
	switch b.Kind {
	case lease.KindShared:
		return d.acquireShared(ctx, b.By, b.Requests)
	case lease.KindPermits:
		return d.acquirePermits(ctx, b.By, b.Requests)
	case lease.KindSet:
		return d.acquireMany(ctx, b.By, b.Requests, true)
	case lease.KindFair:
		return d.enqueue(ctx, b.By, b.Requests)
	}
	return d.acquireExclusive(ctx, b.By, b.Requests)
}

// acquireExclusive tries a cheaper statement first for a single request.
func (d *leaseDriver) acquireExclusive(ctx context.Context, by lease.By, asks []lease.AcquireRequest) ([]lease.AcquireResult, error) {
	if err := lease.CheckKeys(asks); err != nil {
		return nil, err
	}
	if len(asks) == 1 && !asks[0].Contended && !asks[0].NoTickets {
		answer, err := d.acquireOne(ctx, by, asks[0])
		if answer.Token != 0 || err != nil {
			return []lease.AcquireResult{answer}, err
		}
	}
	return d.acquireMany(ctx, by, asks, false)
}

func (d *leaseDriver) acquireMany(ctx context.Context, by lease.By, asks []lease.AcquireRequest, together bool) ([]lease.AcquireResult, error) {
	p := pgdb.AcquireLeasesParams{MemberID: postgres.UUID(by.Member), Beat: by.Heartbeat, LockTimeout: batchTimeout(ctx, len(asks)), Together: together, InTurn: asks[0].NoTickets}
	for _, a := range asks {
		p.LeaseKeys = append(p.LeaseKeys, a.Key)
		p.Handles = append(p.Handles, postgres.UUID(a.Handle))
	}
	p.Insteads = unlessNone(asks, func(a lease.AcquireRequest) (pgtype.UUID, bool) {
		return postgres.UUID(a.Instead), a.Instead != lease.Handle{}
	})
	p.Gones = unlessNone(asks, func(a lease.AcquireRequest) (pgtype.UUID, bool) {
		return postgres.UUID(a.DeadMember), a.DeadMember != member.ID{}
	})
	p.Overs = unlessNone(asks, func(a lease.AcquireRequest) (bool, bool) { return a.DespiteReaders, a.DespiteReaders })
	p.Labels, p.Datas, p.HoldUs, p.Detached = details(asks)
	rows, err := d.q.AcquireLeases(ctx, d.db, p)
	if err != nil && !together {
		err = ofBatch(err, len(asks))
	}
	if err != nil {
		return nil, err
	}
	var found answered
	for _, r := range rows {
		refused := lease.AcquireResult{Shared: r.Shared}
		if !r.Shared {
			refused = lease.AcquireResult{Held: true, Holder: lease.Holder{
				Member: r.Holder.Bytes, Label: r.HolderLabel, Token: r.HolderToken, Dead: r.HolderDead,
				Remaining: max(0, postgres.FromMicros(r.RemainingUs)),
			}}
		}
		found.note(r.LeaseKey, r.Handle, r.Granted, refused)
	}
	return found.results(asks), nil
}

// unlessNone lists something of each ask; nothing if no ask has it, which is the usual case and
// costs least.
func unlessNone[T any](asks []lease.AcquireRequest, of func(lease.AcquireRequest) (T, bool)) []T {
	if !slices.ContainsFunc(asks, func(a lease.AcquireRequest) bool { _, has := of(a); return has }) {
		return []T{}
	}
	list := make([]T, len(asks))
	for i, a := range asks {
		list[i], _ = of(a)
	}
	return list
}

// answered is what a statement says of a batch: the token of each acquisition that it granted, and
// by key why the others were refused.
type answered struct {
	granted    map[acquisition]int64
	refused    map[string]lease.AcquireResult
	memberGone bool
}

// acquisition is a row's key and handle. The acquisitions of a set have one handle.
type acquisition struct {
	key    string
	handle lease.Handle
}

// note takes in one row. A row without a key says that the member is gone.
func (b *answered) note(key string, handle pgtype.UUID, granted int64, refused lease.AcquireResult) {
	if b.granted == nil {
		b.granted, b.refused = make(map[acquisition]int64), make(map[string]lease.AcquireResult)
	}
	switch {
	case key == "":
		b.memberGone = true
	case granted != 0:
		b.granted[acquisition{key, handle.Bytes}] = granted
	default:
		refused.Dead = append(refused.Dead, b.refused[key].Dead...)
		b.refused[key] = refused
	}
}

// results returns the answer to each ask. It grants only what the statement returned under the
// ask's handle.
func (b *answered) results(asks []lease.AcquireRequest) []lease.AcquireResult {
	results := make([]lease.AcquireResult, len(asks))
	for i, a := range asks {
		if token := b.granted[acquisition{a.Key, a.Handle}]; token != 0 {
			results[i] = lease.AcquireResult{Token: token, Handle: a.Handle}
			continue
		}
		results[i] = b.refused[a.Key]
		results[i].MemberGone = b.memberGone
	}
	return results
}
