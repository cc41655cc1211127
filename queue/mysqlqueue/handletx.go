package mysqlqueue

import (
	"context"
	"database/sql"

	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/internal/link"
)

// HandleTx is queue.Handle for handlers whose effects are in the database of the jobs: fn works in
// tx, and if it returns nil the job ends in tx, too, and both are committed, or neither. What fn
// writes in tx is there exactly once, whatever becomes of workers, connections and the server, as
// far as the server itself loses no commits; what it does elsewhere, at least once.
//
// tx is of READ COMMITTED, on a connection of the pool that the Queue was made with: for as long as
// fn runs, it has one, so that the pool needs as many as WorkerOptions.Concurrency, and what New
// says besides. If none is to be had while the job's time lasts, or the server can't be reached,
// the job is run again after about a second, and that is no attempt. To begin takes three round
// trips, and the job's end five of its own, and more if it has keys or Options.History is set.
//
// tx is rolled back if fn returns an error (Snooze, Discard and Cancel, too) or panics, or if a
// middleware makes an error of what it returned. It is also rolled back if ctx has ended, or if the
// process has lost its claims, even if it does not know that yet (Observer.Lost). Then the job goes
// on as with queue.Handle. After a deadlock fn is run again at once, up to five times in one
// attempt; so it must return the errors of its statements. If the row of the job's unique key or
// group is locked at its end, for longer than about a second, or the row of the job, the job is run
// again soon, and that is no attempt.
//
// A commit that got no answer is looked up. If the job has ended, and the process has lost its
// claims by then, another process may have ended it. The outcome is unknown then: Observer.Lost
// counts the job, and Observer.Trouble gets dblock.ErrOutcomeUnknown.
//
// EnqueueTx with tx makes jobs that follow from this one exactly if it ends. fn must not use tx
// after it has returned, nor end it: the attempt fails with dblock.ErrTxEnded then, and what it has
// committed is there. The same happens after a statement that commits, such as CREATE TABLE, and
// after a deadlock whose error it did not return. The server has rolled back what was sent before
// that error, and what was sent after it is written at once.
//
// Errors: dblock.ErrInvalid, also if the kind has a handler, or q is of another driver.
func HandleTx[T any](q *queue.Queue, kind string, fn func(ctx context.Context, tx *sql.Tx, job queue.Job[T]) error, opts ...queue.HandlerOption) error {
	return link.HandleTx(q, kind, fn, opts...)
}
