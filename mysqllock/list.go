package mysqllock

import (
	"context"
	"database/sql"
	"errors"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/mysql"
)

// List reads what is held, of all keys or of one, in one statement, and so in one snapshot.
func (d *leaseDriver) List(ctx context.Context, key string) ([]lease.HeldLease, error) {
	if key != "" {
		return d.holdersOf(ctx, key)
	}
	rows, err := read(mysql.OfFew(ctx), d.conns, func(on mysqldb.DBTX) ([]mysqldb.ListHeldRow, error) {
		return d.q.ListHeld(ctx, on)
	})
	if err != nil {
		return nil, err
	}
	listed := make([]lease.HeldLease, len(rows))
	for i, r := range rows {
		listed[i] = lease.HeldLease{
			Key: string(r.LeaseKey), Mode: dblock.Mode(r.Mode), Permits: int(r.Permits), Limit: int(r.LimitedTo),
			Token: r.Token, Handle: id(r.Handle.String),
			Holder: lease.Holder{
				Member: id(r.MemberID.String), Label: string(r.Label), Token: r.Token, Remaining: micros(r.RemainingUs),
			},
			MemberLabel: string(r.MemberLabel), Age: micros(r.AgeUs), Waiters: r.Waiters,
		}
	}
	return listed, nil
}

// holdersOf reads the acquisitions that hold one key.
func (d *leaseDriver) holdersOf(ctx context.Context, key string) ([]lease.HeldLease, error) {
	rows, err := read(ctx, d.conns, func(on mysqldb.DBTX) ([]mysqldb.HoldersOfKeyRow, error) {
		return d.q.HoldersOfKey(ctx, on, []byte(key), []byte(key), []byte(key))
	})
	if err != nil {
		return nil, err
	}
	holders := make([]lease.HeldLease, len(rows))
	for i, r := range rows {
		holders[i] = lease.HeldLease{
			Key: key, Mode: dblock.Mode(r.Mode), Token: r.Token, Handle: id(r.Handle.String), MemberLabel: string(r.MemberLabel),
			Holder: lease.Holder{Member: id(r.MemberID.String), Label: string(r.Label), Token: r.Token},
		}
	}
	return holders, nil
}

// HeldBy reads what stands under a member, in one statement.
func (d *leaseDriver) HeldBy(ctx context.Context, m member.ID) ([]lease.ReleaseRequest, error) {
	of := sql.NullString{String: string(m[:]), Valid: true}
	rows, err := read(ctx, d.conns, func(on mysqldb.DBTX) ([]mysqldb.HeldByMemberRow, error) {
		return d.q.HeldByMember(ctx, on, mysqldb.HeldByMemberParams{OfLeases: of, OfReaders: of, OfPermits: of, OfTickets: m[:]})
	})
	if err != nil {
		return nil, err
	}
	held := make([]lease.ReleaseRequest, len(rows))
	for i, r := range rows {
		held[i] = lease.ReleaseRequest{Key: string(r.LeaseKey), Handle: id(r.Handle.String), Mode: dblock.Mode(r.Mode)}
	}
	return held, nil
}

// Get reads one lease.
func (d *leaseDriver) Get(ctx context.Context, key string) (l lease.HeldLease, held bool, err error) {
	r, err := read(ctx, d.conns, func(on mysqldb.DBTX) (mysqldb.GetLeaseRow, error) {
		return d.q.GetLease(ctx, on, []byte(key))
	})
	if errors.Is(err, sql.ErrNoRows) {
		return d.getShared(ctx, key)
	}
	if err != nil {
		return l, false, err
	}
	return lease.HeldLease{
		Key: string(r.LeaseKey), Token: r.Token, Handle: id(r.Handle.String),
		Holder: lease.Holder{
			Member: id(r.MemberID.String), Label: string(r.Label), Token: r.Token, Remaining: micros(r.RemainingUs),
		},
		MemberLabel: string(r.MemberLabel), Age: micros(r.AgeUs), Waiters: r.Waiters, Data: bytesOf(r.Data),
	}, true, nil
}

// getShared reads a holder of a key that none holds exclusively, or else the key's last token.
func (d *leaseDriver) getShared(ctx context.Context, key string) (l lease.HeldLease, held bool, err error) {
	r, err := read(ctx, d.conns, func(on mysqldb.DBTX) (mysqldb.GetSharedOrPermitsRow, error) {
		k := []byte(key)
		return d.q.GetSharedOrPermits(ctx, on, mysqldb.GetSharedOrPermitsParams{WaitedKey: k, TicketsKey: k, SharedKey: k, PermitsKey: k})
	})
	switch {
	case err == nil:
		return lease.HeldLease{
			Key: key, Mode: dblock.Mode(r.Mode), Permits: int(r.Permits), Limit: int(r.LimitedTo),
			Token: r.Token, Handle: id(string(r.Handle)),
			Holder: lease.Holder{
				Member: id(r.MemberID.String), Label: string(r.Label), Token: r.Token, Remaining: micros(r.RemainingUs),
			},
			MemberLabel: string(r.MemberLabel), Age: micros(r.AgeUs), Waiters: r.Waiters, Data: bytesOf(r.Data),
		}, true, nil
	case !errors.Is(err, sql.ErrNoRows):
		return l, false, err
	}
	l.Key = key
	l.Token, err = read(ctx, d.conns, func(on mysqldb.DBTX) (int64, error) {
		return d.q.LastToken(ctx, on, []byte(key))
	})
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return l, false, err
}

// bytesOf are the bytes of a column, or nil.
func bytesOf(column sql.NullString) []byte {
	if !column.Valid {
		return nil
	}
	return []byte(column.String)
}
