package pginventory

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/postgres"
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
// rows that it leaves open, are found, and are a failure, too. The stock is locked meanwhile: write
// in one statement, or one batch.
type Hook func(ctx context.Context, tx HookTx, granted []inventory.Reservation) error

// HookTx is the transaction of a Hook. Its begin and end are not the Hook's.
type HookTx interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error)
}

// WithHook calls hook for each batch that Reserve and ReserveAll sell or hold, before it is
// committed. Every batch takes the way of a transaction then, three round trips; ReserveTx needs no
// hook and calls none.
func WithHook(hook Hook) Option { return func(d *database) { d.hook = hook } }

// What the server says of a session: inTransaction if its transaction can be committed.
const (
	inTransaction = 'T'
	inFailed      = 'E' // a statement has failed: nothing will be committed
)

// longestHookWait is how long a statement of a hook waits for a lock at most: the stock is locked
// meanwhile.
const longestHookWait = time.Second

// runHook sends what is written so far and has the owner write what is theirs.
func (d *database) runHook(ctx context.Context, conn *pgxpool.Conn, trip statements, plan driver.Plan) error {
	began := time.Now()
	ctx = driver.HookContext(ctx)
	trip.add(postgres.MarkTx)
	trip.add(postgres.SetLockTimeout, strconv.FormatInt(min(lockTimeout(ctx), longestHookWait).Milliseconds(), 10))
	for _, setting := range asTheOwners {
		trip.add(setting)
	}
	if err := d.inBatch(conn)(ctx, trip); err != nil {
		return orKeyOpen(err)
	}
	granted := link.Inventory.Granted(plan, began)
	if len(granted) == 0 {
		return nil
	}
	tx := &hookTx{conn: conn}
	err := driver.CallHook(func() error { return d.hook(ctx, tx, granted) })
	open := tx.end()
	switch {
	case err == nil && (open || conn.Conn().PgConn().IsBusy()):
		return driver.ErrHookOpen
	case err == nil && conn.Conn().PgConn().TxStatus() == inTransaction:
		return nil
	case err == nil && conn.Conn().PgConn().TxStatus() == inFailed:
		return driver.ErrHookSwallowed
	case err == nil:
		return driver.ErrHookEnded
	case driver.HookEndedItself(ctx, err), postgres.Code(err) == "" && !conn.Conn().IsClosed() && ctx.Err() == nil: // the hook's own
		return driver.HookFailed(err, sqlerr.Unclassified)
	}
	return driver.HookFailed(err, d.Failure(err).Class)
}

// errHookReturned is what a HookTx says that its hook has kept.
var errHookReturned = errors.New("pginventory: the hook has returned: its transaction is not its own any more")

// hookTx is the connection until the hook returns. The next transaction on it may be another one's.
type hookTx struct {
	mu   sync.Mutex // held while a statement is sent
	conn *pgxpool.Conn
	over bool
}

// end takes the connection away. It reports whether a statement was under way: then the connection
// is broken.
func (t *hookTx) end() (open bool) {
	if !t.mu.TryLock() {
		open = true
		_ = t.conn.Conn().PgConn().Conn().Close()
		t.mu.Lock()
	}
	defer t.mu.Unlock()
	t.over = true
	return open
}

// on calls f unless the hook has returned.
func (t *hookTx) on(f func()) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return errHookReturned
	}
	f()
	return nil
}

func (t *hookTx) Exec(ctx context.Context, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	if over := t.on(func() { tag, err = t.conn.Exec(ctx, sql, args...) }); over != nil {
		return tag, over
	}
	return tag, err
}

func (t *hookTx) Query(ctx context.Context, sql string, args ...any) (rows pgx.Rows, err error) {
	if over := t.on(func() { rows, err = t.conn.Query(ctx, sql, args...) }); over != nil {
		return late{}, over
	}
	return rows, err
}

func (t *hookTx) QueryRow(ctx context.Context, sql string, args ...any) (row pgx.Row) {
	if t.on(func() { row = t.conn.QueryRow(ctx, sql, args...) }) != nil {
		return late{}
	}
	return row
}

func (t *hookTx) SendBatch(ctx context.Context, b *pgx.Batch) (results pgx.BatchResults) {
	if t.on(func() { results = t.conn.SendBatch(ctx, b) }) != nil {
		return lateBatch{}
	}
	return results
}

func (t *hookTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (n int64, err error) {
	if over := t.on(func() { n, err = t.conn.CopyFrom(ctx, table, columns, rows) }); over != nil {
		return 0, over
	}
	return n, err
}

// late is the answer to a query after the hook has returned.
type late struct{}

func (late) Close()                                       {}
func (late) Err() error                                   { return errHookReturned }
func (late) CommandTag() pgconn.CommandTag                { return pgconn.CommandTag{} }
func (late) FieldDescriptions() []pgconn.FieldDescription { return nil }
func (late) Next() bool                                   { return false }
func (late) Scan(...any) error                            { return errHookReturned }
func (late) Values() ([]any, error)                       { return nil, errHookReturned }
func (late) RawValues() [][]byte                          { return nil }
func (late) Conn() *pgx.Conn                              { return nil }
func (late) TypeMap() *pgtype.Map                         { return nil }

// lateBatch is the answer to a batch then.
type lateBatch struct{}

func (lateBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, errHookReturned }
func (lateBatch) Query() (pgx.Rows, error)         { return late{}, errHookReturned }
func (lateBatch) QueryRow() pgx.Row                { return late{} }
func (lateBatch) Close() error                     { return errHookReturned }
func (lateBatch) Tx() pgx.Tx                       { return nil }
