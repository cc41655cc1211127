package mysqlinventory

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/internal/driver"
	"github.com/dblock-go/dblock/inventory/internal/link"
)

// Option is an option of New that only this driver has.
type Option func(*database)

// Hook writes rows of your own for what a batch grants, in the same transaction and so in the
// same commit. It is not called for orders that are refused or were recorded before. It may be
// called again for the same orders, if the transaction was rolled back, and must write nothing but
// through tx. If it fails, panics, or exits, the orders of the batch are tried one by one, and the
// one that makes it fail is refused with inventory.ErrRejected, which says why. It returns the
// errors of its statements, and reads or closes their rows: an error that it keeps to itself, or
// rows that it leaves open, are found, and are a failure, too. Two kinds of errors are not found:
// of a statement of PrepareContext, and of rows that are closed before they are read to their end.
// So read the rows of INSERT … RETURNING. The stock is locked meanwhile: write in one statement.
type Hook func(ctx context.Context, tx HookTx, granted []inventory.Reservation) error

// HookTx is the transaction of a Hook. Its begin and end are not the Hook's.
type HookTx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// WithHook calls hook for each batch that Reserve and ReserveAll sell or hold, before it is
// committed. ReserveTx needs no hook and calls none.
func WithHook(hook Hook) Option { return func(d *database) { d.hook = hook } }

// runHook has the owner write what is theirs.
func (d *database) runHook(ctx context.Context, conn *sql.Conn, plan driver.Plan) error {
	granted := link.Inventory.Granted(plan, time.Now())
	if len(granted) == 0 {
		return nil
	}
	if _, err := conn.ExecContext(ctx, "SAVEPOINT dblock_hook"); err != nil {
		return err
	}
	unbind, err := d.db.BindFor(ctx, conn, driver.IsBrief(ctx))
	if err != nil {
		return err
	}
	defer unbind()
	tx := &hookTx{Conn: conn}
	err = driver.CallHook(func() error { return d.hook(ctx, tx, granted) })
	open, failed := tx.close()
	switch {
	case err == nil && open:
		return driver.ErrHookOpen
	case err == nil:
		if err = d.afterHook(ctx, tx); err == nil && failed != nil {
			err = &driver.HookError{Err: fmt.Errorf("%w: %w", driver.ErrHookSwallowed, failed)}
		}
		return err
	case driver.HookEndedItself(ctx, err), mysql.ErrorNumber(err) == 0 && !mysql.IsBroken(err) && (open || conn.PingContext(ctx) == nil): // the hook's own
		return driver.HookFailed(err, sqlerr.Unclassified)
	case isRowLocked(err):
		return driver.HookFailed(err, sqlerr.Busy)
	}
	return driver.HookFailed(err, d.Failure(err).Class)
}

// hookTx is a transaction that notes the errors of its statements, and ends what it has returned:
// the connection takes no other statement while rows are open.
type hookTx struct {
	*sql.Conn
	mu      sync.Mutex
	failed  error // of the first statement that has failed
	rows    []*sql.Rows
	cancels []context.CancelFunc // of rows that it does not see
	unseen  bool                 // a statement may have rows that it does not see
}

// note notes how a statement ended.
func (t *hookTx) note(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed == nil {
		t.failed = err
	}
}

func (t *hookTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	result, err := t.Conn.ExecContext(ctx, query, args...)
	t.note(err)
	return result, err
}

func (t *hookTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	rows, err := t.Conn.QueryContext(ctx, query, args...)
	t.note(err)
	if err == nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.rows = append(t.rows, rows)
	}
	return rows, err
}

func (t *hookTx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	ctx, cancel := context.WithCancel(ctx)
	t.mu.Lock()
	t.cancels, t.unseen = append(t.cancels, cancel), true
	t.mu.Unlock()
	row := t.Conn.QueryRowContext(ctx, query, args...)
	t.note(row.Err())
	return row
}

func (t *hookTx) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	t.mu.Lock()
	t.unseen = true
	t.mu.Unlock()
	stmt, err := t.Conn.PrepareContext(ctx, query)
	t.note(err)
	return stmt, err
}

// close ends the rows that the hook has not read. open reports that there were some: the connection
// may take no other statement. failed is the error of the first statement that has failed.
func (t *hookTx) close() (open bool, failed error) {
	for _, rows := range t.rows {
		_, closed := rows.Columns()
		open = open || closed == nil
		t.note(rows.Err())
		_ = rows.Close()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	open = open || t.unseen && !mysql.IsValid(t.Conn)
	for _, cancel := range t.cancels {
		cancel()
	}
	return open, t.failed
}

// afterHook looks whether the transaction still stands: a deadlock rolls all of it back, and a hook
// that does not look at its errors goes on outside of any.
func (d *database) afterHook(ctx context.Context, tx *hookTx) error {
	_, err := tx.ExecContext(ctx, "RELEASE SAVEPOINT dblock_hook")
	switch {
	case mysql.IsNoSavepoint(err):
		return driver.ErrHookEnded
	case err != nil && mysql.ErrorNumber(err) == 0 && tx.unseen && ctx.Err() == nil: // rows came late
		return driver.ErrHookOpen
	}
	return err
}
