package mysqlqueue

import (
	"context"
	"database/sql"
	"errors"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/mysql"
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
// needs as many as WorkerOptions.Concurrency, and what New says besides. If none is to be had while the job's time lasts, or the
// server can't be reached, the job is run again after about a second, and that is no attempt. To begin takes three round trips, and
// the job's end five of its own, and more if it has keys or Options.History is set.
//
// tx is rolled back if fn returns an error (Snooze, Discard and Cancel, too) or panics, if a middleware makes an error of what it
// returned, if ctx has ended, and if the process has lost its claims, for which it need not know yet (Observer.Lost); then the job
// goes on as with queue.Handle. After a deadlock fn is run again at once, up to five times in one attempt; so it must return the errors of
// its statements. If the row of the job's unique key or group is locked at its end, for longer than about 50 ms, or the row of the
// job, the job is run again soon, and that is no attempt.
//
// A commit that got no answer is looked up. If the job has ended, and the process has lost its
// claims by then, another process may have ended it. The outcome is unknown then: Observer.Lost
// counts the job, and Observer.Trouble gets dblock.ErrOutcomeUnknown.
//
// EnqueueTx with tx makes jobs that follow from this one exactly if it ends. fn must not use tx after it has returned, nor end it: the
// attempt fails with dblock.ErrTxEnded then, and what it has committed is there. So it is after a statement that commits, such as CREATE
// TABLE, and after a deadlock whose error it did not return: the server has rolled back what was sent before that error, and what was sent
// after it is written at once.
//
// Errors: dblock.ErrInvalid, also if the kind has a handler, or q is of another driver.
func HandleTx[T any](q *queue.Queue, kind string, fn func(ctx context.Context, tx *sql.Tx, job queue.Job[T]) error, opts ...queue.HandlerOption) error {
	return link.HandleTx(q, kind, fn, opts...)
}

var _ engine.Beginner[*sql.Tx] = (*database)(nil)

// Begin records on the connection of the transaction: to wait for another one of the pool, all
// connections of which may be those of handlers, could last for ever.
func (d *database) Begin(ctx context.Context, m member.ID, first *engine.Place) (*sql.Tx, engine.Work, engine.Beginning, error) {
	got := engine.BeginRecorded
	var recording error
	tx, err := mysql.Begin(ctx, d.db.DB, mysql.ReadCommitted+", READ WRITE", func(conn *sql.Conn) error {
		if first == nil {
			return nil
		}
		var begun, locked []engine.ID
		begun, locked, recording = d.beginJobs(ctx, d.on(conn), m, []engine.Place{*first})
		if got = engine.BeginningOf(begun, locked); recording == nil && got != engine.BeginRecorded {
			return errNotRecorded
		}
		return recording
	})
	switch {
	case recording != nil:
		return nil, nil, got, recording
	case errors.Is(err, errNotRecorded):
		return nil, nil, got, nil
	case err != nil:
		return nil, nil, got, sqlerr.Unwritten(err)
	}
	return tx.Tx, &work{d, tx}, got, nil
}

var errNotRecorded = errors.New("queue: the beginning of the job was not recorded")

// Await is a transaction, so that no default of the session's can be in the way.
func (d *database) Await(ctx context.Context, job engine.ID) (stands bool, err error) {
	err = d.inTx(ctx, func(on mysqldb.DBTX) (commit bool, err error) {
		found, err := d.q.AwaitJob(ctx, on, job[:])
		stands = len(found) > 0
		return false, err
	})
	return stands, err
}
