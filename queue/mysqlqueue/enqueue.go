package mysqlqueue

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/internal/engine"
	"github.com/dblock-go/dblock/queue/internal/link"
)

// EnqueueTx is Queue.EnqueueMany in a transaction of the caller's: the jobs are there if and when tx commits. It is two round trips, as no
// statement here inserts into two tables, and more for many tasks. Workers learn of the jobs when they next look, within WorkerOptions.Poll.
//
// With keys it is up to nine round trips. What they lock stays locked till tx ends: jobs of the same Group, or with the same Unique, are not
// enqueued by others before, and none of the Group, nor the one that has a unique key already, ends. Enqueue last, and all in one call, as
// two calls may deadlock with two of others.
//
// Errors: dblock.ErrInvalid, and nothing was sent; a *queue.DuplicateError, which is no reason to roll back; others are the
// database's: roll tx back.
func EnqueueTx(ctx context.Context, q *queue.Queue, tx *sql.Tx, tasks ...queue.Task) ([]queue.ID, error) {
	return link.EnqueueIn(ctx, q, engine.CallerTx{Tx: tx}, tasks)
}

// Insert is a transaction of its own.
func (d *database) Insert(ctx context.Context, jobs []engine.Insert, wait time.Duration) (dups []engine.Duplicate, err error) {
	if wait > 0 {
		return d.insert(ctx, jobs, true)
	}
	err = patiently(ctx, func() (err error) {
		dups, err = d.insert(ctx, jobs, false)
		return err
	})
	return dups, err
}

func (d *database) insert(ctx context.Context, jobs []engine.Insert, atOnce bool) (dups []engine.Duplicate, err error) {
	err = d.inTx(ctx, func(on mysqldb.DBTX) (commit bool, err error) {
		if atOnce {
			if err := lockKeys(ctx, on, jobs); err != nil {
				return false, err
			}
		}
		dups, err = insertAll(ctx, on, jobs)
		return true, err
	})
	return dups, err
}

// lockKeys locks the unique keys and groups of jobs, as far as they are there, or fails at once. An INSERT can't do so: where another
// transaction has inserted the same key, and is open, it waits.
func lockKeys(ctx context.Context, on mysqldb.DBTX, jobs []engine.Insert) error {
	unique, groups := make(map[key]struct{}), make(map[key]struct{})
	for i := range jobs {
		j := &jobs[i]
		if j.Unique != "" {
			unique[key{j.Queue, j.Unique}] = struct{}{}
		}
		if j.Group != "" && j.Delay == 0 {
			groups[key{j.Queue, j.Group}] = struct{}{}
		}
	}
	if err := lockNow(ctx, on, mysqldb.LockUniqueNoWait, sorted(unique)); err != nil {
		return err
	}
	return lockNow(ctx, on, mysqldb.LockGroupsNoWait, sorted(groups))
}

// Tx returns a caller's transaction.
func (d *database) Tx(tx engine.CallerTx) (engine.Tx, bool) {
	caller, ours := tx.Tx.(*sql.Tx)
	if !ours || caller == nil {
		return nil, false
	}
	return callerTx{d.onCaller(caller)}, true
}

type callerTx struct{ on mysqldb.DBTX }

func (t callerTx) Insert(ctx context.Context, jobs []engine.Insert, _ bool) ([]engine.Duplicate, error) {
	return insertAll(ctx, t.on, jobs)
}

// insertAll enqueues jobs, and those with keys in another way.
func insertAll(ctx context.Context, on mysqldb.DBTX, jobs []engine.Insert) ([]engine.Duplicate, error) {
	if slices.ContainsFunc(jobs, func(j engine.Insert) bool { return j.HasKeys() }) {
		return insertKeyed(ctx, on, jobs)
	}
	return nil, insert(ctx, on, jobs)
}

// insertRows is how many rows one statement inserts at most.
const insertRows = 1000

func insert(ctx context.Context, on mysqldb.DBTX, jobs []engine.Insert) error {
	for some := range slices.Chunk(jobs, insertRows) {
		args := make([]any, 0, 6*len(some))
		for _, j := range some {
			args = append(args, j.ID[:], []byte(j.Queue), []byte(j.Kind), j.Priority, j.MaxAttempts, j.Payload)
		}
		if err := rows(ctx, on, mysqldb.EnqueueJobs, len(some), args); err != nil {
			return err
		}
		var ready, later []any
		for _, j := range some {
			if j.Delay == 0 {
				ready = append(ready, []byte(j.Queue), j.Priority, j.ID[:])
			} else {
				later = append(later, max(j.Delay.Microseconds(), 1), j.ID[:], []byte(j.Queue), j.Priority)
			}
		}
		if err := rows(ctx, on, mysqldb.ReadyJobs, len(ready)/3, ready); err != nil {
			return err
		}
		if err := rows(ctx, on, mysqldb.ScheduleJobs, len(later)/4, later); err != nil {
			return err
		}
	}
	return nil
}

// rows inserts n rows, in one statement if the server takes it.
func rows(ctx context.Context, on mysqldb.DBTX, query string, n int, args []any) error {
	if n == 0 {
		return nil
	}
	each := len(args) / n
	for some := range mysql.Portions(on, query, each, n, args) {
		if _, err := on.ExecContext(ctx, mysql.RepeatRows(query, len(some)/each), some...); err != nil {
			return err
		}
	}
	return nil
}
