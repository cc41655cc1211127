package mysqloptimistic

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/mysqlfault"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/optimistic"
)

// unwritten says what the error of a statement means that has left nothing written: it reads, or its transaction is rolled back.
func unwritten(ctx context.Context, err error) error {
	switch {
	case optimistic.IsDefinite(err), ctx.Err() != nil:
		return err
	case mysqlfault.Number(err) != 0 && mysqlfault.Of(sqlerr.Unwritten(err)) == sqlerr.Unavailable, isBroken(err):
		return sqlerr.Wrap(sqlerr.Unavailable, err, "a statement failed", "")
	default:
		return err // it may well be the caller's own
	}
}

// maybeWritten says what the error of a statement means that is a transaction by itself.
func maybeWritten(ctx context.Context, err error) error {
	if optimistic.IsDefinite(err) {
		return err
	}
	return wrapped(ctx, classOf(err), err)
}

// Wrong says what the error of a Table's own statement means, which is never the caller's.
func (room) Wrong(ctx context.Context, what string, wrote bool, err error) error {
	if errors.Is(err, dblock.ErrOutcomeUnknown) || errors.Is(err, dblock.ErrUnavailable) || errors.Is(err, dblock.ErrConflict) {
		return fmt.Errorf("optimistic: %s: %w", what, err) // of a transaction of UpdateMany's own
	}
	if mysqlfault.Number(err) == 0 && ctx.Err() == nil && !isBroken(err) {
		return fmt.Errorf("optimistic: %s: %w", what, err) // an argument that can't be sent, or a transaction that has ended
	}
	known := err
	if !wrote {
		known = sqlerr.Unwritten(err)
	}
	is := classOf(known).OfHost()
	if is == sqlerr.Retryable {
		what += ": roll back, read it again and repeat the change"
	}
	return sqlerr.Wrap(is, err, what, lookAgain)
}

// wrapped puts an error into the words of package dblock if the connection is to blame. Any other
// may be the caller's own.
func wrapped(ctx context.Context, is sqlerr.Class, err error) error {
	const what = "a statement that writes"
	switch is {
	case sqlerr.Unavailable:
		return sqlerr.Wrap(is, err, what, "")
	case sqlerr.Unresolved:
		return sqlerr.Wrap(is, errors.Join(context.Cause(ctx), err), what, lookAgain)
	}
	return err
}

// lookAgain is the advice about a write whose outcome is unknown.
const lookAgain = "no answer came: read the row again to see whether it is written"

// classOf is mysqlfault.Of of a statement, and not of a commit: one that was never sent is not
// unresolved.
func classOf(err error) sqlerr.Class {
	if mysqlfault.NeverSent(err) {
		return sqlerr.Unavailable
	}
	return mysqlfault.Of(err)
}

// isBroken tells that there is no connection, or not any more. A context's error may be one of the caller's own, and tells nothing.
func isBroken(err error) bool {
	var dial *net.OpError
	switch {
	case errors.As(err, &dial) && dial.Op == "dial" && !errors.Is(err, context.Canceled):
		return true
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false
	}
	for _, kind := range []error{mysql.ErrInvalidConn, mysql.ErrMalformPkt, mysql.ErrPktSync, mysql.ErrPktSyncMul} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return mysqlfault.NeverSent(err) || errors.As(err, new(net.Error))
}

// isMissing tells that there is no such table.
func isMissing(err error) bool {
	n := mysqlfault.Number(err)
	return n == mysqlfault.NoSuchTable || n == mysqlfault.UnknownDatabase
}
