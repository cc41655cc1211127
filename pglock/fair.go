package pglock

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/postgres"
)

// enqueue is one statement, whatever the size of the batch.
func (d *leaseDriver) enqueue(ctx context.Context, by lease.By, asks []lease.AcquireRequest) ([]lease.AcquireResult, error) {
	p := pgdb.EnqueueParams{MemberID: postgres.UUID(by.Member), Beat: by.Heartbeat}
	for _, a := range asks {
		p.LeaseKeys, p.Handles = append(p.LeaseKeys, a.Key), append(p.Handles, postgres.UUID(a.Handle))
	}
	p.Labels, p.Datas, p.HoldUs, p.Detached = details(asks)
	rows, err := d.q.Enqueue(ctx, d.db, p)
	if err != nil {
		return nil, err
	}
	given := make(map[pgtype.UUID]int64, len(rows))
	for _, r := range rows {
		given[r.Handle] = r.Ticket
	}
	tickets := make([]lease.AcquireResult, len(asks))
	for i, a := range asks {
		tickets[i].Ticket = given[postgres.UUID(a.Handle)]
	}
	return tickets, nil
}

// Entry reads one row. Another process has written a grant: it counts once the synchronous
// standbys have it.
func (d *leaseDriver) Entry(ctx context.Context, key string, handle lease.Handle, ticket int64) (lease.QueueEntry, error) {
	r, err := d.q.ReadTicket(ctx, d.db, postgres.UUID(handle), ticket, key)
	if errors.Is(err, pgx.ErrNoRows) {
		return lease.QueueEntry{Missing: true, Waits: true}, nil
	}
	if err == nil && r.Granted != 0 && r.Unconfirmed {
		err = d.q.ConfirmCommits(ctx, d.db)
	}
	return lease.QueueEntry{
		AcquireResult: lease.AcquireResult{
			Token: r.Granted, Handle: r.Handle.Bytes, Held: r.Held, Shared: r.Shared && (!r.Held || r.HolderDead), Holder: lease.Holder{
				Member: r.Holder.Bytes, Label: r.HolderLabel, Token: r.HolderToken, Dead: r.HolderDead, Remaining: max(0, postgres.FromMicros(r.RemainingUs)),
			},
		},
		Remaining: max(0, postgres.FromMicros(r.HoldUs)), Waits: r.Waits,
	}, err
}

// Serve is one statement.
func (d *leaseDriver) Serve(ctx context.Context, key string, gone member.ID) (bool, error) {
	rows, err := notifying(d, func(on pgdb.DBTX, notify bool) ([]pgdb.ServeRow, error) {
		return d.q.Serve(ctx, on, pgdb.ServeParams{Notify: notify, LeaseKey: key, Gone: postgres.UUID(gone), LockTimeout: lockTimeout(ctx)})
	})
	return len(rows) > 0, err
}

// passOn is one statement, whatever the size of the batch. What may wait still is withdrawn before,
// in a statement of its own: without a ticket it is granted no more, and what it was granted until
// then is seen.
func (d *leaseDriver) passOn(ctx context.Context, backs []lease.ReleaseRequest) ([]lease.ReleaseResult, error) {
	keys, handles := keysAndHandles(lease.MayWait(backs))
	if len(keys) > 0 {
		if _, err := d.q.DeleteTickets(ctx, d.db, keys, handles, batchTimeout(ctx, len(backs))); err != nil {
			return nil, ofBatch(err, len(backs))
		}
	}
	keys, handles = keysAndHandles(backs)
	rows, err := notifying(d, func(on pgdb.DBTX, notify bool) ([]pgdb.HandOffRow, error) {
		return d.q.HandOff(ctx, on, pgdb.HandOffParams{LeaseKeys: keys, Handles: handles, LockTimeout: lockTimeout(ctx), Notify: notify})
	})
	if err != nil {
		return nil, err
	}
	return releaseResults(backs, alike(rows, func(r pgdb.HandOffRow) pgdb.ReleaseSharedRow { return pgdb.ReleaseSharedRow(r) })), nil
}
