package mysqllock

import (
	"context"
	"database/sql"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/mysqlfault"
)

// nowait has MariaDB run a statement that waits for no lock: error 1205 comes at once. MySQL has nothing like it,
// and gets statements that pass over what is locked.
type nowait struct{ mysqldb.DBTX }

func (n nowait) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return n.DBTX.ExecContext(ctx, withoutWaiting+query, args...)
}

const withoutWaiting = "SET STATEMENT innodb_lock_wait_timeout = 0 FOR "

// takeOne grants one key where it is free, and not locked by anybody at this moment.
func (e *engine) takeOne(ctx context.Context, by lease.By, a lease.Ask) (taken, token int64, err error) {
	p := mysqldb.AcquireLeaseParams{
		Handle: a.Handle[:], Keeper: keeper(by, a), HoldUs: a.Hold.Microseconds(), Label: []byte(a.Label), Data: a.Data,
		LeaseKey: []byte(a.Key), Instead: a.Instead[:], Gone: a.Gone[:], MemberID: by.Member[:], Beat: by.Beat,
	}
	if a.Over {
		p.Pending = 1
	}
	err = e.once(ctx, func(on mysqldb.DBTX) error {
		var result sql.Result
		var err error
		if e.mariaDB {
			result, err = e.q.AcquireLease(ctx, nowait{on}, p)
		} else {
			result, err = e.q.AcquireLeaseSkipping(ctx, on, mysqldb.AcquireLeaseSkippingParams{
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
	if mysqlfault.IsLocked(err) {
		return 0, 0, nil
	}
	return taken, token, err
}

// freeOne gives one lease back, where nobody has locked it at this moment.
func (e *engine) freeOne(ctx context.Context, b lease.Back) (freed int64, err error) {
	p := mysqldb.ReleaseLeaseParams{LeaseKey: []byte(b.Key), Handle: b.Handle[:], Token: b.Token}
	err = e.once(ctx, func(on mysqldb.DBTX) (err error) {
		if e.mariaDB {
			freed, err = e.q.ReleaseLease(ctx, nowait{on}, p)
		} else {
			freed, err = e.q.ReleaseLeaseSkipping(ctx, on, mysqldb.ReleaseLeaseSkippingParams(p))
		}
		return err
	})
	if mysqlfault.IsLocked(err) {
		return 0, nil
	}
	return freed, err
}

// changed reads how many rows a statement changed, and what it told as its insert id.
func changed(result sql.Result) (rows, told int64, err error) {
	if rows, err = result.RowsAffected(); err == nil {
		told, err = result.LastInsertId()
	}
	return rows, told, err
}
