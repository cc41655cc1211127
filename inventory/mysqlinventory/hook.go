package mysqlinventory

import (
	"context"
	"database/sql"
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

// Hook writes rows of the host's for what a batch grants, in the same transaction and so in the
// same commit. It is not called for orders that are refused or were recorded before. It may be
// called again for the same orders, if the transaction was rolled back, and must write nothing
// but through tx. If it fails, panics, or exits, the orders of the batch are tried one by one,
// and the one that makes it fail is refused with inventory.ErrRejected, which says why. It returns
// the errors of its statements: one that it keeps to itself is found, and is a failure, too. The
// stock is locked meanwhile: write in one statement.
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
	granted := link.Granted(plan, time.Now())
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
	tx.closeRows()
	switch {
	case err == nil: // a deadlock rolls the transaction back, and a hook that drops its errors goes on outside of any
		if _, err = conn.ExecContext(ctx, "RELEASE SAVEPOINT dblock_hook"); mysql.IsNoSavepoint(err) {
			return driver.ErrHookEnded
		}
		return err
	case driver.HookEndedItself(ctx, err), mysql.ErrorNumber(err) == 0 && conn.PingContext(ctx) == nil: // the hook's own
		return driver.HookFailed(err, sqlerr.Unclassified)
	case isRowLocked(err):
		return driver.HookFailed(err, sqlerr.Busy)
	}
	return driver.HookFailed(err, d.Failure(err).Class)
}

// hookTx is a transaction that knows the rows it has returned. The connection takes no other
// statement while rows are open.
type hookTx struct {
	*sql.Conn
	mu   sync.Mutex
	rows []*sql.Rows
}

func (t *hookTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	rows, err := t.Conn.QueryContext(ctx, query, args...)
	if err == nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.rows = append(t.rows, rows)
	}
	return rows, err
}

// closeRows closes the rows that the hook has left open.
func (t *hookTx) closeRows() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, rows := range t.rows {
		_ = rows.Close()
	}
}
