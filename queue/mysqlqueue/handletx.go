package mysqlqueue

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/internal/mysqlfault"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/internal/engine"
)

// HandleTx is queue.Handle for handlers whose effects are in the database of the jobs: fn works in tx, and where it returns nil the job ends
// in tx, too, and both are committed, or neither. What fn writes in tx is there exactly once, whatever becomes of workers, connections
// and the server, as far as the server itself loses no commits; what it does elsewhere, at least once.
//
// tx is of READ COMMITTED, on a connection of the pool that the Queue was made with: for as long as fn runs, it has one, so that the pool
// needs as many as WorkerOptions.Concurrency, and what New says besides. Where none is to be had while the job's time lasts, or the
// server can't be reached, the job is run again after about a second, and that is no attempt. To begin takes three round trips, and
// the job's end five of its own, and more where it has keys or Options.History is set.
//
// tx is rolled back where fn returns an error (Snooze, Discard and Cancel, too) or panics, where a middleware makes an error of what it
// returned, where ctx has ended, and where the process has lost its claims, for which it need not know yet (Observer.Lost); then the job
// goes on as with queue.Handle. After a deadlock fn is run again at once, up to five times in one attempt; so it must return the errors of
// its statements. A commit that got no answer is looked up.
//
// EnqueueTx with tx makes jobs that follow from this one exactly if it ends. fn must not use tx after it has returned, nor end it: the
// attempt fails with dblock.ErrTxEnded then, and what it has committed is there. So it is after a statement that commits, such as CREATE
// TABLE, and after a deadlock whose error it did not return: the server has rolled back what was sent before that error, and what was sent
// after it is written at once.
//
// Errors: dblock.ErrInvalid, also where the kind has a handler, or q is of another engine.
func HandleTx[T any](q *queue.Queue, kind string, fn func(ctx context.Context, tx *sql.Tx, job queue.Job[T]) error, opts ...queue.HandlerOption) error {
	return queue.HandleIn(q, kind, fn, opts...)
}

var _ engine.Beginner[*sql.Tx] = (*database)(nil)

// Begin sends nothing twice that could have been written, as there is nothing.
func (d *database) Begin(ctx context.Context) (*sql.Tx, engine.Work, error) {
	for n := 1; ; n++ {
		conn, err := d.pool.Conn(ctx)
		if err != nil {
			return nil, nil, fault.NoWrite(err)
		}
		w := &work{d: d, conn: conn}
		if err = w.begin(ctx); err == nil {
			return w.tx, w, nil
		}
		discard(conn)
		_ = conn.Close()
		if n == attempts || !errors.Is(err, driver.ErrBadConn) {
			return nil, nil, fault.NoWrite(err)
		}
	}
}

// work is a transaction that a handler works in.
type work struct {
	d    *database
	conn *sql.Conn
	tx   *sql.Tx

	stop func() bool // what ends it with the handler's context
	kept bool        // that was stopped in time
	end  context.CancelFunc
	over bool // the server has confirmed its end
}

// rollbackBound is for how long the answer to a rollback is waited for.
const rollbackBound = time.Second

// keep has the end of the handler's context be its own no more; false: it has ended.
func (w *work) keep() bool {
	w.kept = w.kept || w.stop()
	return w.kept
}

// mark is a savepoint that is there for as long as the transaction is the one that was begun.
const mark = "dblock_queue_job"

// begin has the transaction end with ctx, until the handler has returned.
func (w *work) begin(ctx context.Context) error {
	if _, err := w.conn.ExecContext(ctx, readCommitted[0]+", READ WRITE"); err != nil {
		return err
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	w.end, w.stop = end, context.AfterFunc(ctx, end)
	tx, err := w.conn.BeginTx(life, nil)
	if err != nil {
		end()
		return err
	}
	w.tx = tx
	if _, err := tx.ExecContext(ctx, "SAVEPOINT "+mark); err != nil {
		_ = tx.Rollback() // which gives the connection back to whoever discards it
		end()
		return err
	}
	return nil
}

// End looks whether the transaction is still the one that was begun: in another one, or in none, the end would be written by itself.
func (w *work) End(ctx context.Context, x *engine.Exchange) (ours bool, err error) {
	if !w.keep() {
		return false, errors.New("mysqlqueue: the transaction was rolled back, as the handler's context had ended")
	}
	if _, err := w.tx.ExecContext(ctx, "RELEASE SAVEPOINT "+mark); err != nil {
		return false, ended(err)
	}
	e := &exchange{d: w.d, ctx: ctx, on: w.d.on(w.tx), me: x.Member}
	var got engine.Exchanged
	for _, step := range []func(*engine.Exchange, *engine.Exchanged) error{e.finish, e.free} {
		if err := step(x, &got); errors.Is(err, errSomeLost) {
			return false, nil
		} else if err != nil {
			return false, err
		}
	}
	return got.Finished == len(x.Finished), nil
}

// ended says what it means that the savepoint can't be released.
func ended(err error) error {
	switch {
	case errors.Is(err, sql.ErrTxDone):
		return fmt.Errorf("%w: the handler committed it or rolled it back: return nil to have it committed, an error to have it rolled back: %w",
			dblock.ErrTxEnded, err)
	case mysqlfault.IsNoSavepoint(err):
		return fmt.Errorf("%w: the handler did not return an error that rolled it back, or sent a statement that commits: what was sent "+
			"after that is written (what came before a statement that commits, too): return all errors, and keep such statements out: %w",
			dblock.ErrTxEnded, err)
	}
	return err
}

// Commit is a statement, as Commit of a *sql.Tx takes no context: where the network goes silent it would hang for minutes.
func (w *work) Commit(ctx context.Context) error {
	_, err := w.tx.ExecContext(ctx, "COMMIT")
	w.over = err == nil
	return err
}

// Rollback sends one after a commit, too: it is how a *sql.Tx gives its connection back, and does nothing then. Where it is not confirmed
// the connection is closed.
func (w *work) Rollback(ctx context.Context) {
	own := w.keep() // else database/sql rolls back by itself, and does not say how that went
	if !w.over {
		ctx, cancel := context.WithTimeout(ctx, rollbackBound)
		defer cancel()
		_, err := w.tx.ExecContext(ctx, "ROLLBACK")
		w.over = err == nil
	}
	err := w.tx.Rollback()
	w.end()
	if !own || !w.over || err != nil {
		discard(w.conn)
	}
	_ = w.conn.Close()
}

// Await is a transaction, so that no default of the session's can be in the way.
func (d *database) Await(ctx context.Context, job engine.ID) (stands bool, err error) {
	err = d.inTx(ctx, func(on mysqldb.DBTX) (commit bool, err error) {
		found, err := d.q.AwaitJob(ctx, on, job[:])
		stands = len(found) > 0
		return false, err
	})
	return stands, err
}
