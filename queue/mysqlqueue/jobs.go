package mysqlqueue

import (
	"bytes"
	"context"
	"database/sql"
	"slices"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// BeginJobs is one statement for a single job that is recorded. Otherwise another one reads which
// are: some drivers count the rows that were found, others those that were changed.
func (d *database) BeginJobs(ctx context.Context, m member.ID, all []driver.Position) (begun, locked []driver.ID, err error) {
	return d.beginJobs(ctx, d.on(d.db), m, all)
}

func (d *database) beginJobs(ctx context.Context, on mysqldb.DBTX, m member.ID, all []driver.Position) (begun, locked []driver.ID, err error) {
	var args []any
	for i := range all {
		args = append(args, m[:], all[i].Claim[:], all[i].Job[:])
	}
	n, err := mysql.ExecAll(ctx, on, mysqldb.BeginJobs, maxReads, args)
	switch {
	case err != nil:
		return nil, nil, err
	case n == 1 && len(all) == 1:
		return []driver.ID{all[0].Job}, nil, nil
	}
	err = mysql.QueryAll(ctx, on, mysqldb.BegunJobs, maxReads, args, func(row *sql.Rows) error {
		var job []byte
		var recorded bool
		err := row.Scan(&job, &recorded)
		if recorded {
			begun = append(begun, idOf(job))
		} else {
			locked = append(locked, idOf(job))
		}
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return begun, locked, nil
}

// Payloads reads rows.
func (d *database) Payloads(ctx context.Context, jobs []driver.ID) (map[driver.ID][]byte, error) {
	rows, err := d.q.ReadPayloads(ctx, d.on(d.db), blobs(jobs))
	payloads := make(map[driver.ID][]byte, len(rows))
	for _, r := range rows {
		payloads[idOf(r.JobID)] = r.Payload
	}
	return payloads, sqlerr.Unwritten(err)
}

// CountJobs counts rows. One that waits for a row is a transaction, so that no default of the
// session's can be in the way.
func (d *database) CountJobs(ctx context.Context, jobs []driver.ID, wait bool) (stand int, err error) {
	if wait {
		err = d.inTx(ctx, func(on mysqldb.DBTX) (commit bool, err error) {
			found, err := d.q.AwaitJob(ctx, on, jobs[0][:])
			stand = len(found)
			return false, err
		})
		return stand, err
	}
	n, err := d.q.CountJobs(ctx, d.on(d.db), blobs(jobs))
	return int(n), sqlerr.Unwritten(err)
}

// cancelsAmong reads which of some jobs, whose claims are locked, others want cancelled.
func (e *syncTx) cancelsAmong(jobs [][]byte) (cancelled []driver.ID, err error) {
	for some := range slices.Chunk(jobs, maxReads) {
		found, err := e.d.q.CancelsAmong(e.ctx, e.on, e.me[:], some)
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			cancelled = append(cancelled, idOf(f))
		}
	}
	return cancelled, nil
}

// keep writes down jobs that are about to be finished: those whose claims were the member's.
func (e *syncTx) keep(x *driver.SyncBatch, ours [][]byte) error {
	var finished [][]byte
	var cancelled []any
	for i := range x.History {
		switch k := &x.History[i]; {
		case !has(ours, k.Job):
		case k.Outcome == driver.OutcomeCompleted:
			finished = append(finished, k.Job[:])
		default:
			cancelled = append(cancelled, k.Job[:], k.Attempt, []byte(k.Reason))
		}
	}
	if len(finished) > 0 {
		if err := e.d.q.KeepFinished(e.ctx, e.on, finished); err != nil {
			return err
		}
	}
	_, err := mysql.ExecAll(e.ctx, e.on, mysqldb.KeepCancelled, maxReads, cancelled)
	return err
}

// keepDead writes down jobs that were discarded.
func (e *syncTx) keepDead(x *driver.SyncBatch, ours [][]byte) error {
	if !x.KeepDiscarded {
		return nil
	}
	return e.d.q.KeepDead(e.ctx, e.on, ours)
}

// has reports whether a job is among some that are in order.
func has(ours [][]byte, job driver.ID) bool {
	_, found := slices.BinarySearchFunc(ours, job[:], bytes.Compare)
	return found
}

// lockPlaces locks the rows of jobs in their claim, and returns those that are there.
func lockPlaces(ctx context.Context, on mysqldb.DBTX, jobs [][]byte, member, claim []byte) (found [][]byte, err error) {
	for some := range slices.Chunk(jobs, maxReads) {
		err := mysql.QueryEach(ctx, on, mysqldb.LockClaimed, append(anys(some), member, claim), func(row *sql.Rows) error {
			var job []byte
			err := row.Scan(&job)
			found = append(found, job)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// byKeys runs a statement that asks for nothing but the ids of jobs, and has other arguments after
// them.
func byKeys(ctx context.Context, on mysqldb.DBTX, query string, jobs [][]byte, others ...any) (affected int64, err error) {
	for some := range slices.Chunk(jobs, maxReads) {
		result, err := on.ExecContext(ctx, query, append(anys(some), others...)...)
		if err != nil {
			return affected, err
		}
		n, err := result.RowsAffected()
		if err != nil {
			return affected, err
		}
		affected += n
	}
	return affected, nil
}

func anys(jobs [][]byte) []any {
	all := make([]any, len(jobs))
	for i, j := range jobs {
		all[i] = j
	}
	return all
}

// maxReads is how many SELECTs one statement has.
const maxReads = 500
