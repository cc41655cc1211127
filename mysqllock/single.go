package mysqllock

import (
	"context"
	"database/sql"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/mysql"
)

// takeOne grants one key if it is free and its row is not locked.
func (l *leaseRows) takeOne(ctx context.Context, by lease.By, a lease.AcquireRequest) (taken, token int64, err error) {
	p := mysqldb.AcquireLeaseParams{
		Handle: a.Handle[:], Keeper: keeper(by, a), HoldUs: a.Hold.Microseconds(), Label: []byte(a.Label), Data: a.Data,
		LeaseKey: []byte(a.Key), Instead: a.Instead[:], Gone: a.DeadMember[:], MemberID: by.Member[:], Beat: by.Heartbeat,
	}
	if a.DespiteReaders {
		p.Pending = 1
	}
	err = l.grantOne(ctx, func(on mysqldb.DBTX) error {
		var result sql.Result
		var err error
		if l.db.MariaDB {
			result, err = l.q.AcquireLease(ctx, mysql.AtOnce(on), p)
		} else {
			result, err = l.q.AcquireLeaseSkipping(ctx, on, mysqldb.AcquireLeaseSkippingParams{
				Handle: p.Handle, Keeper: p.Keeper, HoldUs: p.HoldUs, Label: p.Label, Data: p.Data,
				MemberID: p.MemberID, Beat: p.Beat, LeaseKey: p.LeaseKey, Instead: p.Instead, Gone: p.Gone, Pending: p.Pending,
			})
		}
		if err != nil {
			return err
		}
		taken, token, err = changed(result)
		return err
	})
	if mysql.IsLocked(err) {
		return 0, 0, nil
	}
	return taken, token, err
}

// freeOne releases one lease if its row is not locked.
func (l *leaseRows) freeOne(ctx context.Context, b lease.ReleaseRequest) (freed int64, err error) {
	p := mysqldb.ReleaseLeaseParams{LeaseKey: []byte(b.Key), Handle: b.Handle[:], Token: b.Token}
	err = l.once(ctx, func(on mysqldb.DBTX) (err error) {
		if l.db.MariaDB {
			freed, err = l.q.ReleaseLease(ctx, mysql.AtOnce(on), p)
		} else {
			freed, err = l.q.ReleaseLeaseSkipping(ctx, on, mysqldb.ReleaseLeaseSkippingParams(p))
		}
		return err
	})
	if mysql.IsLocked(err) {
		return 0, nil
	}
	return freed, err
}

// changed returns how many rows a statement changed, and their token. If a trigger hides the token
// it is 0: see reads it.
func changed(result sql.Result) (rows, token int64, err error) {
	return mysql.CarriedID(result, leastToken)
}

// leastToken is a number below all tokens, which are microseconds since 1970.
const leastToken = 1e15
