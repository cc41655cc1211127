package pglock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/ctxerr"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/retry"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// TxBeginner is a *pgxpool.Pool, a *pgxpool.Conn or a *pgx.Conn that is in no transaction.
type TxBeginner interface {
	BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error)
}

// TxOptions are those of RunTx. The zero value is good for use. What they say holds whatever the
// session's defaults are.
type TxOptions struct {
	// Isolation. Default: pgx.ReadCommitted.
	Isolation pgx.TxIsoLevel

	// ReadOnly has the server refuse writes, with an error that says so. Default: read and write.
	ReadOnly bool

	// Deferrable has the transaction wait, before its first statement, until it can meet no
	// conflict. It is for long reports, and only with pgx.Serializable and ReadOnly.
	Deferrable bool

	// Attempts is how often at most the transaction is run. Default 10, at most 1,000. Between two
	// there is a pause of about 5 ms, then twice as long each time, up to 500 ms; each is longer or
	// shorter by up to a half.
	Attempts int

	// OnRetry, if not nil, is called before each of these pauses, with the attempt that failed,
	// from 1, and the server's error. A panic of its is ignored.
	OnRetry func(attempt int, err error)
}

// RunTx runs fn in a transaction and commits it. If the server rolled it back for the sake of
// others (see Retryable) it runs all of it again, fn included: what fn does outside of the
// transaction it does more than once. If fn fails or panics, the transaction is rolled back. A
// connection whose rollback fails is closed.
//
// fn must return the errors of its statements. It must not end the transaction, nor use it after it
// has returned. A statement that timed out waiting for a lock (IsLockTimeout) is not run again:
// that bound was yours.
//
// Errors: fn's own, as it is, if that is no conflict; nothing was written. dblock.ErrConflict
// if each attempt met one, with the last of the server's; nothing was written.
// dblock.ErrOutcomeUnknown if the connection was lost, or ctx ended, while it committed: it is
// not run again, and may be written. dblock.ErrTxEnded if fn went on after a failed statement as
// if nothing were; nothing was written; or if fn ended the transaction itself. ctx's if it
// ended before the commit; nothing was written. dblock.ErrUnavailable if there is no connection,
// it was lost before, or the server is a standby. dblock.ErrBusy if the server cancelled a
// statement of RunTx itself. dblock.ErrOverloaded if the server's table of locks is full.
// dblock.ErrInvalid; and the server's at COMMIT, such as of a deferred constraint. Nothing was
// written in these cases.
//
// With synchronous replication an administrator can end a commit's wait for its replica, and the
// server then reports success. RunTx takes that for dblock.ErrOutcomeUnknown only on connections
// that WatchCommits was applied to.
func RunTx(ctx context.Context, pool TxBeginner, o TxOptions, fn func(pgx.Tx) error) error {
	modes, err := o.modes()
	if err != nil {
		return err
	}
	again, err := retry.Options{Attempts: o.Attempts, OnRetry: o.OnRetry}.WithDefaults()
	if err != nil {
		return err
	}
	if err := checkTxArgs(pool, fn); err != nil {
		return err
	}
	return retry.Run(ctx, again, postgres.IsConflict, func() error { return runTx(ctx, pool, modes, fn) })
}

func (o TxOptions) modes() (pgx.TxOptions, error) {
	m := pgx.TxOptions{IsoLevel: cmp.Or(o.Isolation, pgx.ReadCommitted), AccessMode: pgx.ReadWrite, DeferrableMode: pgx.NotDeferrable}
	levels := []pgx.TxIsoLevel{pgx.Serializable, pgx.RepeatableRead, pgx.ReadCommitted, pgx.ReadUncommitted}
	if !slices.Contains(levels, m.IsoLevel) {
		return m, &dblock.InvalidError{Field: "TxOptions.Isolation", Reason: fmt.Sprintf("there is no level %q", o.Isolation)}
	}
	if o.ReadOnly {
		m.AccessMode = pgx.ReadOnly
	}
	if o.Deferrable {
		if m.IsoLevel != pgx.Serializable || !o.ReadOnly {
			return m, &dblock.InvalidError{Field: "TxOptions.Deferrable", Reason: "it needs Isolation: pgx.Serializable and ReadOnly"}
		}
		m.DeferrableMode = pgx.Deferrable
	}
	return m, nil
}

func checkTxArgs(pool TxBeginner, fn func(pgx.Tx) error) error {
	conn, isNil := postgres.ConnOf(pool)
	if isNil {
		return &dblock.InvalidError{Field: "pool", Reason: "it is nil"}
	}
	if fn == nil {
		return &dblock.InvalidError{Field: "fn", Reason: "it is nil"}
	}
	// To begin within a transaction fails that one, or is a mere warning: the commit would be that
	// of the outer one.
	if postgres.InTransaction(conn) {
		return &dblock.InvalidError{Field: "pool", Reason: "the connection is in a transaction already"}
	}
	return nil
}

// runTx is one attempt.
func runTx(ctx context.Context, pool TxBeginner, modes pgx.TxOptions, fn func(pgx.Tx) error) error {
	begun, err := pool.BeginTx(ctx, postgres.MarkedTx(modes))
	if err != nil {
		return errBegin(ctx, err)
	}
	tx := &ownTx{Tx: begun}
	defer func() { // if fn panics, too
		if !tx.ended {
			postgres.Rollback(ctx, tx)
		}
	}()
	conn := tx.Conn()
	cut := watchCut(conn)
	if err := fn(tx); err != nil {
		return err
	}
	if err := tx.checkOpen(ctx, conn); err != nil {
		return err
	}
	return errCommit(ctx, tx.Commit(ctx), cut.Load())
}

// ownTx knows whether it has ended. After that its connection may serve another caller.
type ownTx struct {
	pgx.Tx
	ended bool
}

func (t *ownTx) Commit(ctx context.Context) error {
	t.ended = true
	return t.Tx.Commit(ctx)
}

func (t *ownTx) Rollback(ctx context.Context) error {
	t.ended = true
	return t.Tx.Rollback(ctx)
}

// checkOpen returns why a transaction whose fn has returned nil can't be committed.
func (t *ownTx) checkOpen(ctx context.Context, conn *pgx.Conn) error {
	switch {
	case t.ended, conn != nil && !conn.IsClosed() && conn.PgConn().TxStatus() == 'I': // the server would take COMMIT, with a warning
		return fmt.Errorf("%w: its function committed it or rolled it back: leave that to RunTx", dblock.ErrTxEnded)
	case ctx.Err() != nil: // to try would cost the connection
		return errNotCommitted(ctx, ctx.Err())
	case conn != nil && !conn.IsClosed() && conn.PgConn().TxStatus() == 'E':
		return errFailed(pgx.ErrTxCommitRollback)
	case conn != nil && conn.IsClosed():
		return fmt.Errorf("%w: the connection was lost before the commit, nothing was written", dblock.ErrUnavailable)
	default:
		return nil
	}
}

func errBegin(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("dblock: the context ended before a transaction began: %w: %w", ctxerr.Of(ctx), err)
	case postgres.Code(err) == postgres.CodeUnsupported:
		return fmt.Errorf("%w: a transaction could not begin: the server is a standby: connect to the primary, or set ReadOnly with "+
			"another isolation than Serializable: %w", dblock.ErrUnavailable, err)
	default:
		return errUnwritten("a transaction could not begin", err)
	}
}

// errUnwritten gives an error of dblock's own statement its class. The error came before a COMMIT
// took effect.
func errUnwritten(what string, err error) error {
	return sqlerr.Wrap(postgres.Classify(sqlerr.Unwritten(err)).OfHost(), err, what, "")
}

// errFailed is for a transaction that failed while its fn returned nil.
func errFailed(err error) error {
	return fmt.Errorf("%w: a statement failed and its error was not returned, so that nothing was written: return it: %w", dblock.ErrTxEnded, err)
}

// errCommit says what became of a transaction whose fn has returned nil.
func errCommit(ctx context.Context, err error, cut bool) error {
	var server *pgconn.PgError
	switch {
	case err == nil && cut:
		return fmt.Errorf("%w: the server committed the transaction, but its wait for a replica was ended: it may be lost with this server",
			dblock.ErrOutcomeUnknown)
	case err == nil || postgres.IsConflict(err):
		return err
	case postgres.IsTxEnded(err):
		return fmt.Errorf("%w: its function ended it and began another one, which is rolled back; what it wrote before may be committed: "+
			"leave that to RunTx", dblock.ErrTxEnded)
	case errors.Is(err, pgx.ErrTxCommitRollback):
		return errFailed(err)
	case postgres.NeverSent(err) && ctx.Err() != nil:
		return errNotCommitted(ctx, err)
	case postgres.NeverSent(err):
		return fmt.Errorf("%w: the connection was lost before the commit, nothing was written: %w", dblock.ErrUnavailable, err)
	case errors.As(err, &server) && server.SeverityUnlocalized == "ERROR" && postgres.Classify(err) != sqlerr.Unresolved:
		return errUnwritten("the server refused the commit", err)
	default:
		return fmt.Errorf("%w: no answer came to a COMMIT: look up whether what it wrote is there: %w",
			dblock.ErrOutcomeUnknown, errors.Join(ctxerr.Of(ctx), err))
	}
}

// errNotCommitted is for a context that ended before the commit was sent.
func errNotCommitted(ctx context.Context, err error) error {
	return fmt.Errorf("dblock: the transaction was not committed, nothing was written: %w", errors.Join(ctxerr.Of(ctx), err))
}

// WatchCommits has RunTx learn, on connections made with cfg, of commits whose wait for a
// synchronous replica was ended by pg_cancel_backend or a shutdown. They stand on this server,
// which reports success with a warning, and are lost with it. Apply it to pgxpool.Config.ConnConfig
// before the pool is made. It calls the OnNotice that cfg had.
func WatchCommits(cfg *pgx.ConnConfig) {
	next := cfg.OnNotice
	cfg.OnNotice = func(conn *pgconn.PgConn, notice *pgconn.Notice) {
		// Its text is translated, and its SQLSTATE that of any warning.
		if cut, ok := conn.CustomData()[cutKey].(*atomic.Bool); ok && notice.Routine == "SyncRepWaitForLSN" {
			cut.Store(true)
		}
		if next != nil {
			next(conn, notice)
		}
	}
}

// cutKey is where a connection keeps what WatchCommits has found for RunTx.
const cutKey = "dblock.commit.cut"

// watchCut is true once the wait of a commit on conn was ended. It is read when conn is in its pool
// again.
func watchCut(conn *pgx.Conn) *atomic.Bool {
	cut := new(atomic.Bool)
	if conn == nil { // of a mock
		return cut
	}
	conn.PgConn().CustomData()[cutKey] = cut
	return cut
}
