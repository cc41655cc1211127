package pgqueue

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/internal/engine"
)

// HandleTx is queue.Handle for handlers whose effects are in the database of the jobs: fn works in tx, and where it returns nil the job ends
// in tx, too, and both are committed, or neither. What fn writes in tx is there exactly once, whatever becomes of workers, connections
// and the server, as far as the server itself loses no commits; what it does elsewhere, at least once.
//
// tx is of READ COMMITTED, on a connection of the pool that the Queue was made with: for as long as fn runs, it has one, so that the pool
// needs as many as WorkerOptions.Concurrency. Where none is to be had while the job's time lasts, or the server can't be reached,
// the job is run again after about a second, and that is no attempt. The job's end takes two round trips of its own.
//
// tx is rolled back where fn returns an error (Snooze, Discard and Cancel, too) or panics, where a middleware makes an error of what it
// returned, where ctx has ended, and where the process has lost its claims, for which it need not know yet (Observer.Lost); then the job
// goes on as with queue.Handle. After a deadlock, or a failed serialization, fn is run again at once, up to five times in one
// attempt; so it must return the errors of its statements. A commit that got no answer is looked up.
//
// EnqueueTx with tx makes jobs that follow from this one exactly if it ends. fn must not end tx (its Commit and Rollback refuse, and the
// attempt fails with dblock.ErrTxEnded), nor use it after it has returned.
//
// Errors: dblock.ErrInvalid, also where the kind has a handler, or q is of another engine.
func HandleTx[T any](q *queue.Queue, kind string, fn func(ctx context.Context, tx pgx.Tx, job queue.Job[T]) error, opts ...queue.HandlerOption) error {
	return queue.HandleIn(q, kind, fn, opts...)
}

var _ engine.Beginner[pgx.Tx] = (*database)(nil)

// Begin uses the host's pool: its sessions are as the handlers want them.
func (d *database) Begin(ctx context.Context) (pgx.Tx, engine.Work, error) {
	tx, err := d.host.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite})
	if err != nil {
		return nil, nil, fault.NoWrite(err)
	}
	lent := &lentTx{Tx: tx}
	return lent, &work{d, tx, lent}, nil
}

// work is a transaction that a handler works in.
type work struct {
	d    *database
	tx   pgx.Tx
	lent *lentTx // what the handler has
}

// freshPlans has the server plan the statements that follow for what the tables are now: the sessions are not ours, and may keep plans of
// tables that were empty. It is for this transaction, of which nothing follows but the commit.
const freshPlans = "set local plan_cache_mode = force_custom_plan"

// End is one round trip.
func (w *work) End(ctx context.Context, x *engine.Exchange) (ours bool, err error) {
	if err := w.stands(); err != nil {
		return false, err
	}
	var batch pgx.Batch
	var ended int
	batch.Queue(freshPlans)
	w.d.queueKept(&batch, x)
	w.d.queueKeys(&batch, x)
	w.d.queueFinished(&batch, x, &ended)
	if err := w.tx.SendBatch(ctx, &batch).Close(); err != nil {
		return false, err
	}
	return ended == len(x.Finished), nil
}

// stands takes the transaction back from the handler, and tells why it can't be committed.
func (w *work) stands() error {
	did := w.lent.takeBack()
	conn := w.tx.Conn().PgConn()
	switch {
	case did != "":
		return fmt.Errorf("%w: the handler has called its %s: return nil to have it committed, an error to have it rolled back", dblock.ErrTxEnded, did)
	case conn.IsClosed():
		return fmt.Errorf("%w: the connection was lost before the commit", dblock.ErrUnavailable)
	case conn.TxStatus() == 'I': // the server would take what follows, statement by statement
		return fmt.Errorf("%w: the handler has sent a statement that ended it: what it wrote till then may be there: leave that to HandleTx", dblock.ErrTxEnded)
	case conn.TxStatus() == 'E':
		return fmt.Errorf("%w: a statement of the handler failed and its error was not returned, so that nothing was written: return it", dblock.ErrTxEnded)
	}
	return nil
}

func (w *work) Commit(ctx context.Context) error { return w.tx.Commit(ctx) }

// Rollback closes the connection where that fails.
func (w *work) Rollback(ctx context.Context) {
	w.lent.takeBack()
	ctx, cancel := ending(ctx)
	defer cancel()
	_ = w.tx.Rollback(ctx)
}

// Await is a transaction, so that no default of the session's can be in the way.
func (d *database) Await(ctx context.Context, job engine.ID) (stands bool, err error) {
	err = d.inTx(ctx, func(on pgdb.DBTX) (commit bool, err error) {
		found, err := d.q.AwaitJob(ctx, on, uuid(job))
		stands = len(found) > 0
		return false, err
	})
	return stands, err
}
