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

// Enqueue is one statement, whatever the size of the batch.
func (e *engine) Enqueue(ctx context.Context, by lease.By, asks []lease.Ask) ([]int64, error) {
	p := pgdb.EnqueueParams{MemberID: postgres.UUID(by.Member), Beat: by.Beat}
	for _, a := range asks {
		p.LeaseKeys, p.Handles = append(p.LeaseKeys, a.Key), append(p.Handles, postgres.UUID(a.Handle))
	}
	p.Labels, p.Datas, p.HoldUs, p.Detached = details(asks)
	rows, err := e.q.Enqueue(ctx, e.db, p)
	if err != nil {
		return nil, err
	}
	given := make(map[pgtype.UUID]int64, len(rows))
	for _, r := range rows {
		given[r.Handle] = r.Ticket
	}
	tickets := make([]int64, len(asks))
	for i, a := range asks {
		tickets[i] = given[postgres.UUID(a.Handle)]
	}
	return tickets, nil
}

// SeeTurn reads one row. Another process has written a grant: it counts once the synchronous
// standbys have it.
func (e *engine) SeeTurn(ctx context.Context, key string, handle lease.Handle, ticket int64) (lease.Turn, error) {
	r, err := e.q.SeeTurn(ctx, e.db, postgres.UUID(handle), ticket, key)
	if errors.Is(err, pgx.ErrNoRows) {
		return lease.Turn{Missing: true, Waits: true}, nil
	}
	if err == nil && r.Granted != 0 && r.Unconfirmed {
		err = e.q.ConfirmCommits(ctx, e.db)
	}
	return lease.Turn{
		Answer: lease.Answer{
			Token: r.Granted, Handle: r.Handle.Bytes, Held: r.Held, Shared: r.Shared && (!r.Held || r.HolderDead), Holder: lease.Holder{
				Member: r.Holder.Bytes, Label: r.HolderLabel, Token: r.HolderToken, Dead: r.HolderDead, Remaining: max(0, postgres.FromMicros(r.RemainingUs)),
			},
		},
		Left: max(0, postgres.FromMicros(r.HoldUs)), Waits: r.Waits,
	}, err
}

// Serve is one statement.
func (e *engine) Serve(ctx context.Context, key string, gone member.ID) (bool, error) {
	rows, err := notifying(e, func(on pgdb.DBTX, notify bool) ([]pgdb.ServeRow, error) {
		return e.q.Serve(ctx, on, pgdb.ServeParams{Notify: notify, LeaseKey: key, Gone: postgres.UUID(gone), LockTimeout: lockTimeout(ctx)})
	})
	return len(rows) > 0, err
}

// PassOn is one statement, whatever the size of the batch. What may wait still is withdrawn before, in a statement of
// its own: without a ticket it is granted no more, and what it was granted until then is seen.
func (e *engine) PassOn(ctx context.Context, backs []lease.Back) ([]lease.Returned, error) {
	keys, handles := keysAndHandles(lease.MayWait(backs))
	if len(keys) > 0 {
		if _, err := e.q.WithdrawTickets(ctx, e.db, keys, handles, batchTimeout(ctx, len(backs))); err != nil {
			return nil, ofBatch(err, len(backs))
		}
	}
	keys, handles = keysAndHandles(backs)
	rows, err := notifying(e, func(on pgdb.DBTX, notify bool) ([]pgdb.PassOnRow, error) {
		return e.q.PassOn(ctx, on, pgdb.PassOnParams{LeaseKeys: keys, Handles: handles, LockTimeout: lockTimeout(ctx), Notify: notify})
	})
	if err != nil {
		return nil, err
	}
	return returned(backs, alike(rows, func(r pgdb.PassOnRow) pgdb.ReleaseSharedRow { return pgdb.ReleaseSharedRow(r) })), nil
}
