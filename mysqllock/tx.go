package mysqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/ctxerr"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/retry"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// TxOptions are those of RunTx. The zero value is good for use. What they say holds whatever the
// session's defaults are, and for the transaction only.
type TxOptions struct {
	// Isolation: sql.LevelReadUncommitted, ReadCommitted, RepeatableRead or Serializable. Default:
	// sql.LevelReadCommitted.
	Isolation sql.IsolationLevel

	// ReadOnly has the server refuse writes, with an error that says so. Default: read and write.
	ReadOnly bool

	// Attempts is how often at most the transaction is run. Default 10, at most 1,000. Between two
	// there is a pause of about 5 ms, then twice as long each time, up to 500 ms; each is longer or
	// shorter by up to a half.
	Attempts int

	// OnRetry, if not nil, is called before each of these pauses, with the attempt that failed,
	// from 1, and the server's error. A panic of its is ignored.
	OnRetry func(attempt int, err error)
}

// RunTx runs fn in a transaction and commits it. If it gave way to others (see Retryable) it
// rolls back and runs all of it again, fn included: what fn does outside of the transaction it does
// more than once. If fn fails or panics, the transaction is rolled back. A connection whose
// commit or rollback fails is closed.
//
// fn must return the errors of its statements. It must not end the transaction, nor use it after it
// has returned. After a deadlock the server has rolled all of it back. What is sent then is written
// at once, by itself, as without a transaction. RunTx detects that by a missing savepoint, and
// can't undo it. A statement that timed out waiting for a lock (IsLockTimeout) is not run again:
// that bound was yours.
//
// It takes five round trips, and what fn takes. If ctx ends before the commit, the connection is
// closed. A commit that is under way when ctx ends has a second more.
//
// Errors: fn's own, as it is, if that is no conflict; nothing was written, unless it went on
// after a deadlock. dblock.ErrConflict if each attempt met one, with the last of the server's;
// nothing was written. dblock.ErrOutcomeUnknown if the connection was lost, or ctx ended, while
// it committed: it is not run again, and may be written. dblock.ErrTxEnded if the transaction
// had ended before: fn went on after an error that rolled it back, ran a statement that commits,
// such as CREATE TABLE, or ended it itself; a part may be written. ctx's if it ended before the
// commit; nothing was written. dblock.ErrUnavailable if there is no connection, or it was lost
// before the commit. dblock.ErrBusy if the server cancelled a statement of RunTx itself. Nothing
// was written in these cases. dblock.ErrInvalid.
func RunTx(ctx context.Context, db *sql.DB, o TxOptions, fn func(*sql.Tx) error) error {
	modes, err := o.modes()
	if err != nil {
		return err
	}
	again, err := retry.Options{Attempts: o.Attempts, OnRetry: o.OnRetry}.WithDefaults()
	if err != nil {
		return err
	}
	if db == nil {
		return &dblock.InvalidError{Field: "db", Reason: "it is nil"}
	}
	if fn == nil {
		return &dblock.InvalidError{Field: "fn", Reason: "it is nil"}
	}
	return retry.Run(ctx, again, mysql.IsConflict, func() error { return runTx(ctx, db, modes, fn) })
}

// levels are the isolations as SQL says them.
var levels = map[sql.IsolationLevel]string{
	sql.LevelDefault: "READ COMMITTED", sql.LevelReadCommitted: "READ COMMITTED", sql.LevelReadUncommitted: "READ UNCOMMITTED",
	sql.LevelRepeatableRead: "REPEATABLE READ", sql.LevelSerializable: "SERIALIZABLE",
}

// modes is the statement that is for the next transaction alone. The driver's own leaves read-write
// to the session's default.
func (o TxOptions) modes() (string, error) {
	level, ok := levels[o.Isolation]
	if !ok {
		return "", &dblock.InvalidError{Field: "TxOptions.Isolation", Reason: fmt.Sprintf("there is no level %v", o.Isolation)}
	}
	if o.ReadOnly {
		return "SET TRANSACTION ISOLATION LEVEL " + level + ", READ ONLY", nil
	}
	return "SET TRANSACTION ISOLATION LEVEL " + level + ", READ WRITE", nil
}

// runTx is one attempt.
func runTx(ctx context.Context, db *sql.DB, modes string, fn func(*sql.Tx) error) error {
	tx, err := mysql.Begin(ctx, db, modes, nil)
	if err != nil {
		return errBegin(ctx, err)
	}
	return runOn(ctx, tx, fn, func() {})
}

// runOn runs fn in a transaction that begin has begun, and commits it. The commit is acknowledged
// only if the server confirms that the transaction is open. It calls after when it is over.
func runOn(ctx context.Context, tx *mysql.Tx, fn func(*sql.Tx) error, after func()) error {
	defer tx.Return(after) // if fn panics, too
	if err := fn(tx.Tx); err != nil {
		return err
	}
	if !tx.Keep() {
		return errNotCommitted(ctx, ctx.Err())
	}
	checked, err := tx.CheckAndCommit(ctx)
	if !checked {
		return errUnmarked(ctx, err)
	}
	return errCommit(ctx, err)
}

func errBegin(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("dblock: the context ended before a transaction began: %w: %w", ctxerr.Of(ctx), err)
	default:
		return errUnwritten("a transaction could not begin", err)
	}
}

// errUnwritten gives an error of dblock's own statement its class. The error came before a COMMIT
// took effect.
func errUnwritten(what string, err error) error {
	return sqlerr.Wrap(mysql.Classify(sqlerr.Unwritten(err)).OfHost(), err, what, "")
}

// errUnmarked says what it means that the savepoint can't be released.
func errUnmarked(ctx context.Context, err error) error {
	switch {
	case mysql.IsNoSavepoint(err):
		return fmt.Errorf("%w: its function ended it, did not return an error that rolled it back, or sent a statement that commits: "+
			"what was sent after that is written (what came before a commit, too): leave the end to RunTx, return all errors, and "+
			"send no such statements: %w",
			dblock.ErrTxEnded, err)
	case ctx.Err() != nil:
		return errNotCommitted(ctx, err)
	default:
		return errUnwritten("the transaction could not be checked before its commit", err)
	}
}

// errCommit says what became of a transaction whose fn has returned nil.
func errCommit(ctx context.Context, err error) error {
	switch {
	case err == nil || mysql.IsConflict(err):
		return err
	case errors.Is(err, sql.ErrTxDone): // never sent
		return errNotCommitted(ctx, err)
	}
	switch mysql.Classify(err) {
	case sqlerr.Unresolved, sqlerr.Unclassified:
		return fmt.Errorf("%w: no answer came to a COMMIT: look up whether what it wrote is there: %w", dblock.ErrOutcomeUnknown, err)
	default:
		return errUnwritten("the server refused the commit", err)
	}
}

// errNotCommitted is for a context that ended before the commit was sent.
func errNotCommitted(ctx context.Context, err error) error {
	return fmt.Errorf("dblock: the transaction was not committed, nothing was written: %w", errors.Join(ctxerr.Of(ctx), err))
}
