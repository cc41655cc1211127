package mysqlqueue

import (
	"context"
	"database/sql"
	"slices"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/internal/driver"
	"github.com/dblock-go/dblock/queue/internal/link"
)

// EnqueueTx is Queue.EnqueueMany in a transaction of the caller's: the jobs are there if and when
// tx commits. It is two round trips, as no statement here inserts into two tables, and more for
// many tasks. Workers learn of the jobs when they next look, within WorkerOptions.Poll.
//
// With keys it is up to nine round trips. What they lock stays locked till tx ends: jobs of the
// same Group, or with the same Unique, are not enqueued by others before, and none of the Group,
// nor the one that has a unique key already, ends. Enqueue last, and all in one call, as two calls
// may deadlock with two of others.
//
// Errors: dblock.ErrInvalid, and nothing was sent; a *queue.DuplicateError, which is no reason to
// roll back; others are the database's: roll tx back.
func EnqueueTx(ctx context.Context, q *queue.Queue, tx *sql.Tx, tasks ...queue.Task) ([]queue.ID, error) {
	return link.EnqueueIn(ctx, q, &driver.CallerTx{Tx: tx}, tasks)
}

// Enqueue is a transaction of its own.
func (d *database) Enqueue(ctx context.Context, r *driver.EnqueueRequest) (dups []driver.Duplicate, err error) {
	if r.Tx != nil {
		tx, ours := r.Tx.Tx.(*sql.Tx)
		if !ours || tx == nil {
			return nil, driver.ErrForeignTx
		}
		return insertAll(ctx, d.db.OnCaller(tx), r.Jobs)
	}
	enqueue := func() error {
		return d.inTx(ctx, func(on mysqldb.DBTX) (commit bool, err error) {
			if r.Wait > 0 {
				if err := lockKeys(ctx, on, r.Jobs); err != nil {
					return false, err
				}
				if !driver.HasKeys(r.Jobs) { // a trigger or an index of the host's may wait
					on = mysql.AtOnce(on)
				}
			}
			dups, err = insertAll(ctx, on, r.Jobs)
			return true, err
		})
	}
	if r.Wait > 0 {
		err = enqueue()
	} else {
		err = patiently(ctx, enqueue)
	}
	return dups, err
}

// lockKeys locks the unique keys and groups of jobs, as far as they are there, or fails at once. An
// INSERT can't do so: if another transaction has inserted the same key, and is open, it waits.
func lockKeys(ctx context.Context, on mysqldb.DBTX, jobs []driver.Insert) error {
	unique, groups, delayed := make(map[key]struct{}), make(map[key]struct{}), make(map[key]int32)
	for i := range jobs {
		j := &jobs[i]
		if j.Unique != "" {
			unique[key{j.Queue, j.Unique}] = struct{}{}
		}
		switch {
		case j.Group != "" && j.Delay == 0:
			groups[key{j.Queue, j.Group}] = struct{}{}
		case j.Group != "":
			delayed[key{j.Queue, j.Group}] = j.GroupLimit
		}
	}
	changed, err := changesOf(ctx, on, delayed)
	if err != nil {
		return err
	}
	for _, k := range changed {
		groups[k] = struct{}{}
	}
	if err := lockRows(ctx, on, mysqldb.LockUniqueNoWait, sorted(unique)); err != nil {
		return err
	}
	return lockRows(ctx, on, mysqldb.LockGroupsNoWait, sorted(groups))
}

// insertAll enqueues jobs, and those with keys in another way.
func insertAll(ctx context.Context, on mysqldb.DBTX, jobs []driver.Insert) ([]driver.Duplicate, error) {
	if driver.HasKeys(jobs) {
		return insertKeyed(ctx, on, jobs)
	}
	_, err := insert(ctx, on, jobs, false)
	return nil, err
}

// insertRows is how many rows one statement inserts at most.
const insertRows = 1000

// insert enqueues jobs, and returns those of groups, which are to be assigned to them.
func insert(ctx context.Context, on mysqldb.DBTX, jobs []driver.Insert, keyed bool) (grouped []comer, err error) {
	enqueue := mysqldb.EnqueueJobs
	if keyed {
		enqueue = mysqldb.EnqueueKeyed
	}
	for some := range slices.Chunk(jobs, insertRows) {
		var in, ready, later, grown []any
		for _, j := range some {
			in = append(in, j.ID[:], []byte(j.Queue), []byte(j.Kind), j.Priority, j.MaxAttempts, j.Payload)
			if keyed {
				in = append(in, []byte(j.Unique), []byte(j.Group), j.GroupLimit)
			}
			switch {
			case j.Delay > 0 && j.Group != "":
				grown = append(grown, j.DelayMicros(), j.ID[:], []byte(j.Queue), j.Priority, []byte(j.Group))
			case j.Delay > 0:
				later = append(later, j.DelayMicros(), j.ID[:], []byte(j.Queue), j.Priority)
			case j.Group == "":
				ready = append(ready, []byte(j.Queue), j.Priority, j.ID[:])
			}
			if j.Group != "" {
				grouped = append(grouped, comer{key{j.Queue, j.Group}, j.ID[:], j.Priority, j.GroupLimit, j.Delay > 0})
			}
		}
		for _, s := range []struct {
			text string
			args []any
		}{{enqueue, in}, {mysqldb.ReadyJobs, ready}, {mysqldb.ScheduleJobs, later}, {mysqldb.ScheduleGrouped, grown}} {
			if err := insertMany(ctx, on, s.text, s.args); err != nil {
				return nil, err
			}
		}
	}
	return grouped, nil
}

// insertMany inserts rows.
func insertMany(ctx context.Context, on mysqldb.DBTX, query string, args []any) error {
	_, err := mysql.ExecAll(ctx, on, query, insertRows, args)
	return err
}
