package pgqueue

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/internal/engine"
	"github.com/dblock-go/dblock/queue/internal/link"
)

// HandleTx is queue.Handle for handlers whose effects are in the database of the jobs: fn works in tx, and if it returns nil the job ends
// in tx, too, and both are committed, or neither. What fn writes in tx is there exactly once, whatever becomes of workers, connections
// and the server, as far as the server itself loses no commits; what it does elsewhere, at least once.
//
// tx is of READ COMMITTED, on a connection of the pool that the Queue was made with: for as long as fn runs, it has one, so that the pool
// needs as many as WorkerOptions.Concurrency. If none is to be had while the job's time lasts, or the server can't be reached,
// the job is run again after about a second, and that is no attempt. The job's end takes two round trips of its own.
//
// tx is rolled back if fn returns an error (Snooze, Discard and Cancel, too) or panics, if a middleware makes an error of what it
// returned, if ctx has ended, and if the process has lost its claims, for which it need not know yet (Observer.Lost); then the job
// goes on as with queue.Handle. After a deadlock, or a failed serialization, fn is run again at once, up to five times in one
// attempt; so it must return the errors of its statements. If the row of the job's unique key or group is locked at its end, for longer
// than about 50 ms, the job is run again soon, and that is no attempt.
//
// A commit that got no answer is looked up. If the job has ended, and the process has lost its
// claims by then, another process may have ended it. The outcome is unknown then: Observer.Lost
// counts the job, and Observer.Trouble gets dblock.ErrOutcomeUnknown.
//
// EnqueueTx with tx makes jobs that follow from this one exactly if it ends. fn must not end tx (its Commit and Rollback refuse, and the
// attempt fails with dblock.ErrTxEnded), nor use it after it has returned.
//
// Errors: dblock.ErrInvalid, also if the kind has a handler, or q is of another driver.
func HandleTx[T any](q *queue.Queue, kind string, fn func(ctx context.Context, tx pgx.Tx, job queue.Job[T]) error, opts ...queue.HandlerOption) error {
	return link.HandleTx(q, kind, fn, opts...)
}

var _ engine.Beginner[pgx.Tx] = (*database)(nil)

// Begin uses the host's pool: its sessions are as the handlers want them.
func (d *database) Begin(ctx context.Context, m member.ID, first *engine.Place) (pgx.Tx, engine.Work, engine.Beginning, error) {
	o := postgres.MarkedTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite})
	o.CommitQuery = "" // End checks
	tx, err := d.host.BeginTx(ctx, o)
	if err != nil {
		return nil, nil, engine.BeginRefused, sqlerr.Unwritten(err)
	}
	lent := &lentTx{Tx: tx}
	w := &work{d, tx, lent}
	if first != nil { // by a connection of dblock's own
		begun, locked, err := d.BeginJobs(ctx, m, []engine.Place{*first})
		if got := engine.BeginningOf(begun, locked); err != nil || got != engine.BeginRecorded {
			w.Rollback(context.WithoutCancel(ctx))
			return nil, nil, got, err
		}
	}
	return lent, w, engine.BeginRecorded, nil
}

// Await is a transaction, so that no default of the session's can be in the way.
func (d *database) Await(ctx context.Context, job engine.ID) (stands bool, err error) {
	err = d.inTx(ctx, engine.LongWait, func(on pgdb.DBTX) (commit bool, err error) {
		found, err := d.q.AwaitJob(ctx, on, postgres.UUID(job))
		stands = len(found) > 0
		return false, err
	})
	return stands, err
}
