package mysqloptimistic

import (
	"context"
	"errors"
	"fmt"
	"net"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/optimistic/internal/attempt"
	"github.com/dblock-go/dblock/optimistic/internal/engine"
)

// unwritten says what the error of a statement means that has left nothing written: it reads, or its transaction is rolled back.
func unwritten(ctx context.Context, err error) error {
	switch {
	case attempt.IsDefinite(err), ctx.Err() != nil:
		return err
	case mysql.ErrorNumber(err) != 0 && mysql.Classify(sqlerr.Unwritten(err)) == sqlerr.Unavailable, isBroken(err):
		return sqlerr.Wrap(sqlerr.Unavailable, err, "a statement failed", "")
	default:
		return err // it may well be the caller's own
	}
}

// maybeWritten says what the error of a statement means that is a transaction by itself.
func maybeWritten(ctx context.Context, err error) error {
	if attempt.IsDefinite(err) {
		return err
	}
	return engine.WrapCallers(ctx, classOf(err), err)
}

// Wrong says what the error of a Table's own statement means, which is never the caller's.
func (room) Wrong(ctx context.Context, what string, wrote bool, err error) error {
	if errors.Is(err, dblock.ErrOutcomeUnknown) || errors.Is(err, dblock.ErrUnavailable) || errors.Is(err, dblock.ErrConflict) {
		return fmt.Errorf("optimistic: %s: %w", what, err) // of a transaction of UpdateMany's own
	}
	if mysql.ErrorNumber(err) == 0 && ctx.Err() == nil && !isBroken(err) {
		return fmt.Errorf("optimistic: %s: %w", what, err) // an argument that can't be sent, or a transaction that has ended
	}
	known := err
	if !wrote {
		known = sqlerr.Unwritten(err)
	}
	return engine.Wrap(classOf(known), what, err)
}

// classOf is mysql.Classify of a statement, and not of a commit: one that was never sent is not
// unresolved.
func classOf(err error) sqlerr.Class {
	if mysql.NeverSent(err) {
		return sqlerr.Unavailable
	}
	return mysql.Classify(err)
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
	for _, kind := range []error{mysqldriver.ErrInvalidConn, mysqldriver.ErrMalformPkt, mysqldriver.ErrPktSync, mysqldriver.ErrPktSyncMul} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return mysql.NeverSent(err) || errors.As(err, new(net.Error))
}

// isMissing tells that there is no such table.
func isMissing(err error) bool {
	n := mysql.ErrorNumber(err)
	return n == mysql.NoSuchTable || n == mysql.UnknownDatabase
}
