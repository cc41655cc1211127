package pgqueue

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/pglock"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/internal/engine"
	"github.com/dblock-go/dblock/queue/internal/link"
)

// EnqueueTx is Queue.EnqueueMany in a transaction of the caller's, a pgx.Tx or pglock.SQLTx of a *sql.Tx: the jobs are there if and when tx
// commits. It is one round trip; with 1,000 tasks or more in a pgx.Tx they are copied (COPY), in a few.
//
// The commit notifies workers of all processes. Postgres commits transactions that notify one after
// the other, in all databases of the server, each with its flush. If more of them commit at once
// than the disk flushes one by one, set Options.QuietTx, or Options.PollOnly. Then workers learn of
// the jobs when they next look, within WorkerOptions.Poll. A transaction that has notified can't be
// prepared (PREPARE TRANSACTION): one that is to be needs either option, too.
//
// With keys it is up to four round trips. What they lock stays locked till tx ends: jobs of the same Group, or with the same Unique, are not
// enqueued by others before, and none of the Group ends. Enqueue last, and all in one call, as two calls may deadlock with two of others.
//
// Errors: dblock.ErrInvalid, and nothing was sent; dblock.ErrUnsupported if the client_encoding of
// tx is not UTF8, or its search_path names pg_catalog after another schema; a
// *queue.DuplicateError, which is no reason to roll back; others are the database's: roll tx back.
func EnqueueTx(ctx context.Context, q *queue.Queue, tx pglock.Tx, tasks ...queue.Task) ([]queue.ID, error) {
	return link.EnqueueIn(ctx, q, engine.CallerTx{Tx: tx}, tasks)
}

// Insert is one statement, which is its own transaction, if no job has keys and they are not very many.
func (d *database) Insert(ctx context.Context, jobs []engine.Insert, wait time.Duration) (dups []engine.Duplicate, err error) {
	switch {
	case len(jobs) >= copyFrom && !haveUnique(jobs):
		return nil, postgres.InTx(ctx, d.pool, wait, func(tx pgx.Tx) (commit bool, err error) {
			grouped, err := d.copyJobs(ctx, d.On(tx), tx, jobs)
			if err != nil {
				return false, err
			}
			return true, d.place(ctx, d.On(tx), grouped)
		})
	case !haveKeys(jobs):
		return nil, d.q.EnqueueJobs(ctx, d.db, columns(jobs, untold))
	}
	err = d.inTx(ctx, wait, func(on pgdb.DBTX) (commit bool, err error) {
		dups, err = d.insertKeyed(ctx, on, jobs, untold)
		return true, err
	})
	return dups, err
}

// Tx returns a caller's transaction.
func (d *database) Tx(tx engine.CallerTx) (engine.Tx, bool) {
	caller, ours := tx.Tx.(pglock.Tx)
	if !ours { // a nil one is none, either
		return nil, false
	}
	return callerTx{d, caller, d.OnHost(caller)}, true
}

type callerTx struct {
	d  *database
	tx pglock.Tx
	on pgdb.DBTX
}

func (t callerTx) Insert(ctx context.Context, jobs []engine.Insert, tell bool) ([]engine.Duplicate, error) {
	channel := untold
	if tell {
		channel = t.d.channel
	}
	if tx, can := t.tx.(copier); can && len(jobs) >= copyFrom && !haveUnique(jobs) {
		grouped, err := t.d.copyJobs(ctx, t.on, tx, jobs)
		if err == nil {
			err = t.d.place(ctx, t.on, grouped)
		}
		if err != nil {
			return nil, err
		}
		return nil, t.tell(ctx, jobs, channel)
	}
	if haveKeys(jobs) {
		return t.d.insertKeyed(ctx, t.on, jobs, channel)
	}
	return nil, t.d.q.EnqueueJobs(ctx, t.on, columns(jobs, channel))
}

// tell tells of jobs that were copied, which tells nobody.
func (t callerTx) tell(ctx context.Context, jobs []engine.Insert, channel string) error {
	var payloads []string
	for i := range jobs {
		if payload := ofJobs + ":" + engine.Topic(jobs[i].Queue); jobs[i].Delay == 0 && !slices.Contains(payloads, payload) {
			payloads = append(payloads, payload)
		}
	}
	if channel == untold || len(payloads) == 0 {
		return nil
	}
	return t.d.q.TellNews(ctx, t.on, channel, payloads)
}

// untold is the channel of statements that tell nobody.
const untold = ""

func columns(jobs []engine.Insert, channel string) pgdb.EnqueueJobsParams {
	n := len(jobs)
	p := pgdb.EnqueueJobsParams{
		Channel: channel,
		JobIds:  make([]pgtype.UUID, n), Queues: make([]string, n), Kinds: make([]string, n), Priorities: make([]int16, n),
		MaxAttempts: make([]int16, n), DelaysUs: make([]int64, n), Payloads: make([][]byte, n),
	}
	for i, j := range jobs {
		p.JobIds[i], p.Queues[i], p.Kinds[i], p.Priorities[i] = postgres.UUID(j.ID), j.Queue, j.Kind, j.Priority
		p.MaxAttempts[i], p.Payloads[i] = j.MaxAttempts, j.Payload
		if p.DelaysUs[i] = j.Delay.Microseconds(); j.Delay > 0 {
			p.DelaysUs[i] = max(p.DelaysUs[i], 1)
		}
	}
	return p
}
