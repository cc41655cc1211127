package pgqueue

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// work is a transaction that a handler works in.
type work struct {
	d    *database
	tx   pgx.Tx
	lent *lentTx // what the handler has
}

var _ driver.Beginner[pgx.Tx] = (*database)(nil)

// Begin uses the host's pool: its sessions are as the handlers want them.
func (d *database) Begin(ctx context.Context, m member.ID, first *driver.Position) (pgx.Tx, driver.HandlerTx, driver.Beginning, error) {
	o := postgres.MarkedTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite})
	o.CommitQuery = "" // End checks
	tx, err := d.host.BeginTx(ctx, o)
	if err != nil {
		return nil, nil, driver.BeginRefused, sqlerr.Unwritten(err)
	}
	lent := &lentTx{Tx: tx}
	w := &work{d, tx, lent}
	if first != nil { // by a connection of dblock's own
		begun, locked, err := d.BeginJobs(ctx, m, []driver.Position{*first})
		if got := driver.BeginningOf(begun, locked); err != nil || got != driver.BeginRecorded {
			w.Rollback(context.WithoutCancel(ctx))
			return nil, nil, got, err
		}
	}
	return lent, w, driver.BeginRecorded, nil
}

// freshPlans has the server plan the statements that follow for what the tables are now: the
// sessions are not ours, and may keep plans of tables that were empty. It is for this transaction,
// of which nothing follows but the commit.
const freshPlans = "set local plan_cache_mode = force_custom_plan"

// End is one round trip. The commit has the host's bound: it waits, too, for its turn in the
// server's queue of notifications.
func (w *work) End(ctx context.Context, x *driver.SyncBatch) (ours bool, err error) {
	if err := w.checkOpen(); err != nil {
		return false, err
	}
	var batch pgx.Batch
	var ended int
	batch.Queue(postgres.CheckTx)
	batch.Queue(freshPlans)
	if x.LocksKeys() {
		batch.Queue(postgres.KeepLockTimeout)
		batch.Queue(waitForRows(x))
	}
	w.d.queueHistory(&batch, x)
	w.d.queueKeys(&batch, x)
	w.d.queueFinished(&batch, x, &ended)
	if x.LocksKeys() {
		batch.Queue(postgres.RestoreLockTimeout)
	}
	if err := w.tx.SendBatch(ctx, &batch).Close(); postgres.IsTxEnded(err) {
		return false, errEndedByHandler
	} else if err != nil {
		return false, err
	}
	return ended == len(x.Completed), nil
}

var errEndedByHandler = fmt.Errorf("%w: the handler has sent a statement that ended it: what it wrote till then may be there: leave that to HandleTx",
	dblock.ErrTxEnded)

// checkOpen returns why the transaction can't be committed.
func (w *work) checkOpen() error {
	did := w.lent.ended.Load()
	conn := w.tx.Conn().PgConn()
	switch {
	case did != nil:
		return fmt.Errorf("%w: the handler has called its %s: return nil to have it committed, an error to have it rolled back", dblock.ErrTxEnded, *did)
	case conn.IsClosed():
		return fmt.Errorf("%w: the connection was lost before the commit", dblock.ErrUnavailable)
	case conn.TxStatus() == 'I': // the server would take what follows, statement by statement
		return errEndedByHandler
	case conn.TxStatus() == 'E':
		return fmt.Errorf("%w: a statement of the handler failed and its error was not returned, so that nothing was written: return it", dblock.ErrTxEnded)
	}
	return nil
}

func (w *work) Commit(ctx context.Context) error { return w.tx.Commit(ctx) }

// Rollback closes the connection if that fails.
func (w *work) Rollback(ctx context.Context) {
	postgres.Rollback(ctx, w.tx)
}

// lentTx is a transaction as its handler has it, which can't end it.
type lentTx struct {
	pgx.Tx
	ended atomic.Pointer[string] // how the handler wanted to end it; nil: it did not
}

func (t *lentTx) refuse(what string) error {
	t.ended.Store(&what)
	return &dblock.InvalidError{Field: "tx." + what, Reason: "the transaction of a job is ended by what its handler returns: nil commits it, an error rolls it back"}
}

func (t *lentTx) Commit(context.Context) error { return t.refuse("Commit") }

func (t *lentTx) Rollback(context.Context) error { return t.refuse("Rollback") }
