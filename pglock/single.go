package pglock

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/postgres"
)

// briefly is how long a statement for a single caller waits for a row, in milliseconds: about as
// long as another caller's commit takes. After that the statement comes which passes over what is
// locked.
const briefly = "10"

// acquireOne grants one key. Its answer has no token if nothing is free.
func (d *leaseDriver) acquireOne(ctx context.Context, by lease.By, a lease.AcquireRequest) (lease.AcquireResult, error) {
	r, err := d.q.AcquireLease(ctx, d.db, pgdb.AcquireLeaseParams{
		Handle: postgres.UUID(a.Handle), Detached: a.Detached, HoldUs: postgres.ToMicros(a.Hold), Label: a.Label, Data: a.Data,
		MemberID: postgres.UUID(by.Member), Beat: by.Heartbeat, LockTimeout: briefly, LeaseKey: a.Key, Instead: postgres.UUID(a.Instead), Gone: postgres.UUID(a.DeadMember), Over: a.DespiteReaders,
	})
	if errors.Is(err, pgx.ErrNoRows) || postgres.IsLocked(err) {
		return lease.AcquireResult{}, nil
	}
	return lease.AcquireResult{Token: r.Token, Handle: r.Handle.Bytes}, err
}

// releaseOne fails as locked if the row is.
func (d *leaseDriver) releaseOne(ctx context.Context, b lease.ReleaseRequest) (freed bool, err error) {
	_, err = notifying(d, func(on pgdb.DBTX, notify bool) (string, error) {
		return d.q.ReleaseLease(ctx, on, pgdb.ReleaseLeaseParams{
			LeaseKey: b.Key, Handle: postgres.UUID(b.Handle), Token: b.Token, LockTimeout: briefly, Notify: notify,
		})
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}
