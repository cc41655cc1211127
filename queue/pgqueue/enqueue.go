package pgqueue

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/pglock"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/internal/driver"
	"github.com/dblock-go/dblock/queue/internal/link"
)

// EnqueueTx is Queue.EnqueueMany in a transaction of the caller's, a pgx.Tx or pglock.SQLTx of a
// *sql.Tx: the jobs are there if and when tx commits. It is one round trip; with 1,000 tasks or
// more in a pgx.Tx they are copied (COPY), in a few.
//
// The commit notifies workers of all processes. Postgres commits transactions that notify one after
// the other, in all databases of the server, each with its flush. If more of them commit at once
// than the disk flushes one by one, set Options.QuietTx, or Options.PollOnly. Then workers learn of
// the jobs when they next look, within WorkerOptions.Poll. A transaction that has notified can't be
// prepared (PREPARE TRANSACTION). One that is to be prepared needs either option, too.
//
// With keys it is up to four round trips. What they lock stays locked till tx ends: jobs of the
// same Group, or with the same Unique, are not enqueued by others before, and none of the Group
// ends. Enqueue last, and all in one call, as two calls may deadlock with two of others.
//
// Errors: dblock.ErrInvalid, and nothing was sent; dblock.ErrUnsupported if the client_encoding of
// tx is not UTF8, or its search_path names pg_catalog after another schema; a
// *queue.DuplicateError, which is no reason to roll back; others are the database's: roll tx back.
func EnqueueTx(ctx context.Context, q *queue.Queue, tx pglock.Tx, tasks ...queue.Task) ([]queue.ID, error) {
	return link.EnqueueIn(ctx, q, &driver.CallerTx{Tx: tx}, tasks)
}

// Enqueue is one statement, which is its own transaction, if no job has keys and they are not very
// many.
func (d *database) Enqueue(ctx context.Context, r *driver.EnqueueRequest) (dups []driver.Duplicate, err error) {
	if r.Tx != nil {
		tx, ours := r.Tx.Tx.(pglock.Tx) // nil is none
		if !ours {
			return nil, driver.ErrForeignTx
		}
		channel := silent
		if r.Notify {
			channel = d.channel
		}
		copier, _ := tx.(copier)
		return d.enqueueOn(ctx, d.OnHost(tx), copier, r.Jobs, channel)
	}
	if !driver.HasKeys(r.Jobs) && len(r.Jobs) < copyFrom {
		wait := r.Wait
		if deadline, has := ctx.Deadline(); has && wait == 0 { // the server's own refusal says that nothing was written
			wait = max(time.Millisecond, time.Until(deadline)*9/10)
		}
		return nil, d.insert(ctx, d.db, r.Jobs, silent, wait)
	}
	err = postgres.InTx(ctx, d.pool, r.Wait, func(tx pgx.Tx) (commit bool, err error) {
		dups, err = d.enqueueOn(ctx, d.On(tx), tx, r.Jobs, silent)
		return true, err
	})
	return dups, err
}

// enqueueOn enqueues in a transaction. tx is nil if it does not know COPY.
func (d *database) enqueueOn(ctx context.Context, on pgdb.DBTX, tx copier, jobs []driver.Insert, channel string) ([]driver.Duplicate, error) {
	switch {
	case tx != nil && len(jobs) >= copyFrom && !haveUnique(jobs):
		grouped, err := d.copyJobs(ctx, on, tx, jobs)
		if err == nil {
			err = d.assignGroups(ctx, on, grouped, false)
		}
		if err == nil {
			err = d.notifyOf(ctx, on, jobs, channel)
		}
		return nil, err
	case driver.HasKeys(jobs):
		return d.insertKeyed(ctx, on, jobs, channel)
	}
	return nil, d.insert(ctx, on, jobs, channel, 0) // the transaction has its bound
}

// insert is one statement, of jobs without keys. It waits for a row for so long; 0: as the session.
func (d *database) insert(ctx context.Context, on pgdb.DBTX, jobs []driver.Insert, channel string, wait time.Duration) error {
	p := columns(jobs, channel)
	if wait > 0 {
		p.LockTimeout = strconv.FormatInt(wait.Milliseconds(), 10)
	}
	if slices.ContainsFunc(jobs, func(j driver.Insert) bool { return j.Delay > 0 }) {
		return d.q.EnqueueJobs(ctx, on, p)
	}
	return d.q.EnqueueReadyJobs(ctx, on, pgdb.EnqueueReadyJobsParams{
		LockTimeout: p.LockTimeout, Channel: p.Channel, JobIds: p.JobIds, Queues: p.Queues, Kinds: p.Kinds, Priorities: p.Priorities, MaxAttempts: p.MaxAttempts, Payloads: p.Payloads,
	})
}

// notifyOf notifies of jobs that were copied, which sends no notification.
func (d *database) notifyOf(ctx context.Context, on pgdb.DBTX, jobs []driver.Insert, channel string) error {
	var payloads []string
	for i := range jobs {
		if payload := ofJobs + ":" + schema.Topic(jobs[i].Queue); jobs[i].Delay == 0 && !slices.Contains(payloads, payload) {
			payloads = append(payloads, payload)
		}
	}
	if channel == silent || len(payloads) == 0 {
		return nil
	}
	return d.q.NotifyQueues(ctx, on, channel, payloads)
}

// silent is the channel of statements that send no notification.
const silent = ""

func columns(jobs []driver.Insert, channel string) pgdb.EnqueueJobsParams {
	n := len(jobs)
	p := pgdb.EnqueueJobsParams{
		Channel: channel,
		JobIds:  make([]pgtype.UUID, n), Queues: make([]string, n), Kinds: make([]string, n), Priorities: make([]int16, n),
		MaxAttempts: make([]int16, n), DelaysUs: make([]int64, n), Payloads: make([][]byte, n),
	}
	for i, j := range jobs {
		p.JobIds[i], p.Queues[i], p.Kinds[i], p.Priorities[i] = postgres.UUID(j.ID), j.Queue, j.Kind, j.Priority
		p.MaxAttempts[i], p.Payloads[i], p.DelaysUs[i] = j.MaxAttempts, j.Payload, j.DelayMicros()
	}
	return p
}

// copyFrom is of how many jobs on they are copied: it takes a few round trips more, and a third
// less of the server's time and log.
const copyFrom = 1000

// copier is a transaction that knows COPY: not one of database/sql.
type copier interface {
	CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error)
}

// copyJobs enqueues jobs without unique keys. Ready jobs get their places in the queue in the order
// of the jobs, which differ by a microsecond. Jobs of groups are returned: they are to be assigned
// to them.
func (d *database) copyJobs(ctx context.Context, on pgdb.DBTX, tx copier, jobs []driver.Insert) (grouped []driver.Insert, err error) {
	rows, err := on.Query(ctx, pgdb.TimeToEnqueue)
	if err != nil {
		return nil, err
	}
	now, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[time.Time])
	if err != nil {
		return nil, err
	}
	var ready, later []int
	for i := range jobs {
		switch {
		case jobs[i].Delay > 0:
			later = append(later, i)
		case jobs[i].Group == "":
			ready = append(ready, i)
		}
		if jobs[i].Group != "" {
			grouped = append(grouped, jobs[i])
		}
	}
	_, err = tx.CopyFrom(ctx, d.Table("dblock_queue_job"),
		[]string{"job_id", "queue", "kind", "priority", "max_attempts", "enqueued_at", "payload", "group_key", "group_most"},
		pgx.CopyFromSlice(len(jobs), func(i int) ([]any, error) {
			j := &jobs[i]
			return []any{postgres.UUID(j.ID), j.Queue, j.Kind, j.Priority, j.MaxAttempts, now, j.Payload, groupOf(j), pgtype.Int4{Int32: j.GroupLimit, Valid: j.Group != ""}}, nil
		}))
	if err == nil && len(ready) > 0 {
		_, err = tx.CopyFrom(ctx, d.Table("dblock_queue_ready"), []string{"queue", "priority", "ready_at", "job_id"},
			pgx.CopyFromSlice(len(ready), func(i int) ([]any, error) {
				j := &jobs[ready[i]]
				return []any{j.Queue, j.Priority, now.Add(time.Duration(i) * time.Microsecond), postgres.UUID(j.ID)}, nil
			}))
	}
	if err == nil && len(later) > 0 {
		_, err = tx.CopyFrom(ctx, d.Table("dblock_queue_scheduled"), []string{"run_at", "job_id", "queue", "priority", "group_key"},
			pgx.CopyFromSlice(len(later), func(i int) ([]any, error) {
				j := &jobs[later[i]]
				return []any{now.Add(max(j.Delay, time.Microsecond)), postgres.UUID(j.ID), j.Queue, j.Priority, groupOf(j)}, nil
			}))
	}
	return grouped, err
}

// groupOf is the group of a job; null: it has none.
func groupOf(j *driver.Insert) pgtype.Text { return pgtype.Text{String: j.Group, Valid: j.Group != ""} }
