package mysqllock

import (
	"context"
	"slices"
	"time"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Make makes rows that are missing and free: leases, or a semaphore of so many permits.
func (d *leaseDriver) Make(ctx context.Context, keys []string, permits int) error {
	if permits > 0 {
		return d.permits.makeSemaphore(ctx, keys[0], permits)
	}
	return d.leases.makeUnheld(ctx, false, slices.Sorted(slices.Values(keys)))
}

// makeMissing inserts the rows of keys that have none, in the order of the keys. If another
// transaction has locked the place of a row, the batch is halved while there is time to wait for
// each half, so that one locked place delays few keys. Any other error is the answer of those that
// were in the failed statement, once the batch was divided by a sqlerr.Trial.
func (l *leaseRows) makeMissing(ctx context.Context, by lease.By, asks []lease.AcquireRequest, missing []int, results []lease.AcquireResult) {
	if len(missing) > 0 {
		l.makeDivided(ctx, by, asks, missing, results, new(sqlerr.Trial))
	}
}

func (l *leaseRows) makeDivided(
	ctx context.Context, by lease.By, asks []lease.AcquireRequest, missing []int, results []lease.AcquireResult, trial *sqlerr.Trial,
) {
	fresh := pick(asks, missing)
	token, made, err := l.makeRows(ctx, by, fresh)
	locked := mysql.IsLocked(err)
	from, to := 0, 0
	switch {
	case locked && l.hasTime(ctx):
		to = len(missing) / 2
	case err != nil && !locked:
		from, to = trial.Split(len(missing), l.Classify(err))
	case err == nil:
		trial.Worked()
	}
	if to > 0 {
		l.makeDivided(ctx, by, asks, slices.Clone(missing[from:to]), results, trial)
		l.makeDivided(ctx, by, asks, slices.Concat(missing[:from], missing[to:]), results, trial)
		return
	}
	got := counted(fresh, token)
	if locked && l.db.MariaDB || err == nil && (made < int64(len(fresh)) || token == 0) {
		var still []int
		clear(got)
		still, err = l.see(ctx, by, fresh, got, made)
		markContended(still, got)
	}
	for n, i := range missing {
		results[i] = got[n]
		if err != nil {
			results[i] = lease.AcquireResult{Err: err}
		}
	}
}

// hasTime reports whether two statements can wait for their full bound before ctx ends.
func (c *conns) hasTime(ctx context.Context) bool {
	deadline, has := ctx.Deadline()
	return c.db.MariaDB || !has || time.Until(deadline) > 2*boundWait
}

// markContended marks rows that are still missing: this process's member seems to be gone, or
// another transaction has locked the gap.
func markContended(missing []int, results []lease.AcquireResult) {
	for _, i := range missing {
		results[i].MemberGone = true
	}
}

// makeRows inserts the rows of keys that have none, with their grants. The keys are in order. If
// another transaction has locked the place of a row, the error is a locked one. On MySQL the
// statement passes over a row that another transaction has inserted and not committed. With a short
// TTL ctx may end before the server stops waiting: makeRows waits for the answer all the same.
func (l *leaseRows) makeRows(ctx context.Context, by lease.By, asks []lease.AcquireRequest) (token, made int64, err error) {
	args := []any{by.Member[:], by.Heartbeat}
	for _, a := range asks {
		args = append(args, []byte(a.Key), a.Handle[:], keeper(by, a), a.Hold.Microseconds(), []byte(a.Label), a.Data)
	}
	statement := mysqldb.InsertLeasesSkipping
	if l.db.MariaDB {
		statement = mysqldb.InsertLeases
	} else if deadline, has := ctx.Deadline(); has && time.Until(deadline) < 2*boundWait {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), 2*boundWait)
		defer cancel()
	}
	err = l.grant(ctx, func(on mysqldb.DBTX) error {
		if l.db.MariaDB {
			on = mysql.AtOnce(on)
		}
		made, token, err = execChange(ctx, on, statement, args)
		return err
	})
	return token, made, err
}
