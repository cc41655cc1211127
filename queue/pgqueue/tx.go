package pgqueue

import (
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

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
func (d *database) Begin(ctx context.Context, m member.ID, first *driver.Place) (pgx.Tx, driver.HandlerTx, driver.Beginning, error) {
	o := postgres.MarkedTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite})
	o.CommitQuery = "" // End checks
	tx, err := d.host.BeginTx(ctx, o)
	if err != nil {
		return nil, nil, driver.BeginRefused, sqlerr.Unwritten(err)
	}
	lent := &lentTx{Tx: tx}
	w := &work{d, tx, lent}
	if first != nil { // by a connection of dblock's own
		begun, locked, err := d.BeginJobs(ctx, m, []driver.Place{*first})
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
	if err := w.stands(); err != nil {
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
		return errEndedByHandler
	case conn.TxStatus() == 'E':
		return fmt.Errorf("%w: a statement of the handler failed and its error was not returned, so that nothing was written: return it", dblock.ErrTxEnded)
	}
	return nil
}

func (w *work) Commit(ctx context.Context) error { return w.tx.Commit(ctx) }

// Rollback closes the connection if that fails.
func (w *work) Rollback(ctx context.Context) {
	w.lent.takeBack()
	postgres.Rollback(ctx, w.tx)
}

// lentTx is a transaction as its handler has it: it can't end it, nor use it once it has returned.
type lentTx struct {
	pgx.Tx

	mu    sync.Mutex
	over  bool   // the handler has returned
	ended string // how it wanted to end it
}

// takeBack has all further calls fail, and tells how the handler wanted to end it; empty: it did
// not.
func (t *lentTx) takeBack() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	return t.ended
}

// refuse is for what is not the handler's to do.
func (t *lentTx) refuse(what string) error {
	if err := t.usable(); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = what
	return &dblock.InvalidError{Field: "tx." + what, Reason: "the transaction of a job is ended by what its handler returns: nil commits it, an error rolls it back"}
}

// usable is pgx's error if the handler has returned.
func (t *lentTx) usable() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return pgx.ErrTxClosed
	}
	return nil
}

func (t *lentTx) Commit(context.Context) error { return t.refuse("Commit") }

func (t *lentTx) Rollback(context.Context) error { return t.refuse("Rollback") }

func (t *lentTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := t.usable(); err != nil {
		return nil, err
	}
	return t.Tx.Begin(ctx)
}

func (t *lentTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	if err := t.usable(); err != nil {
		return 0, err
	}
	return t.Tx.CopyFrom(ctx, table, columns, rows)
}

func (t *lentTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := t.usable(); err != nil {
		return closedTx{err: err}
	}
	return t.Tx.SendBatch(ctx, b)
}

func (t *lentTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.usable(); err != nil {
		return nil, err
	}
	return t.Tx.Prepare(ctx, name, sql)
}

func (t *lentTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.usable(); err != nil {
		return pgconn.CommandTag{}, err
	}
	return t.Tx.Exec(ctx, sql, args...)
}

func (t *lentTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.usable(); err != nil {
		return closedRows{err: err}, err
	}
	return t.Tx.Query(ctx, sql, args...)
}

func (t *lentTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.usable(); err != nil {
		return closedTx{err: err}
	}
	return t.Tx.QueryRow(ctx, sql, args...)
}

// closedTx is a row, and the results of a batch, of which nothing was sent. pgx may add methods to
// its interfaces: those are there, and can't be called.
type closedTx struct {
	pgx.BatchResults
	err error
}

func (c closedTx) Scan(...any) error                { return c.err }
func (c closedTx) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, c.err }
func (c closedTx) Query() (pgx.Rows, error)         { return closedRows{err: c.err}, c.err }
func (c closedTx) QueryRow() pgx.Row                { return c }
func (c closedTx) Close() error                     { return c.err }

// closedRows are none, for those who look for the error there.
type closedRows struct {
	pgx.Rows
	err error
}

func (c closedRows) Close()                                       {}
func (c closedRows) Err() error                                   { return c.err }
func (c closedRows) CommandTag() pgconn.CommandTag                { return pgconn.CommandTag{} }
func (c closedRows) FieldDescriptions() []pgconn.FieldDescription { return nil }
func (c closedRows) Next() bool                                   { return false }
func (c closedRows) Scan(...any) error                            { return c.err }
func (c closedRows) Values() ([]any, error)                       { return nil, c.err }
func (c closedRows) RawValues() [][]byte                          { return nil }
func (c closedRows) Conn() *pgx.Conn                              { return nil }
