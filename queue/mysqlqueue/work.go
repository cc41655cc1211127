package mysqlqueue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/mysqlfault"
	"github.com/dblock-go/dblock/internal/mysqltx"
	"github.com/dblock-go/dblock/queue/internal/engine"
)

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
	if _, err := w.conn.ExecContext(ctx, mysqltx.ReadCommitted+", READ WRITE"); err != nil {
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
	for _, step := range []func(*engine.Exchange, *engine.Exchanged) error{e.finish, w.lockKeys(e), e.free} {
		if err := step(x, &got); errors.Is(err, errSomeLost) {
			return false, nil
		} else if err != nil {
			return false, err
		}
	}
	return got.Finished == len(x.Finished), nil
}

// lockKeys locks the keys of the job. A statement that does not wait is repeated, as the server counts a wait in seconds. A refusal may have
// rolled back the whole transaction (innodb_rollback_on_timeout), so that a savepoint has to show that it stands.
func (w *work) lockKeys(e *exchange) func(*engine.Exchange, *engine.Exchanged) error {
	return func(x *engine.Exchange, _ *engine.Exchanged) error {
		keys, groups := e.freed.of()
		if len(keys)+len(groups) == 0 {
			return nil
		}
		if _, err := w.tx.ExecContext(e.ctx, "SAVEPOINT "+mark); err != nil {
			return err
		}
		var refused error
		for pause, waited := time.Millisecond, time.Duration(0); ; pause, waited = 2*pause, waited+pause {
			err := lockKeysNow(e.ctx, e.on, keys, groups)
			if err == nil {
				break
			}
			if refused = err; !mysqlfault.IsLocked(err) || waited >= x.RowWait() || !sleep(e.ctx, pause) {
				return err
			}
		}
		_, err := w.tx.ExecContext(e.ctx, "RELEASE SAVEPOINT "+mark)
		if refused != nil && mysqlfault.IsNoSavepoint(err) {
			return refused
		}
		return err
	}
}

// sleep waits, and tells that ctx lives.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
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
		mysqltx.Discard(w.conn)
	}
	_ = w.conn.Close()
}
