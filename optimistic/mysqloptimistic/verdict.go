package mysqloptimistic

import (
	"context"
	"errors"
	"net"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// isUnavailable reports that the connection is to blame for the error of a statement that wrote
// nothing.
func isUnavailable(err error) bool {
	return mysql.ErrorNumber(err) != 0 && mysql.Classify(sqlerr.Unwritten(err)) == sqlerr.Unavailable || isBroken(err)
}

// Class: of a transaction of UpdateMany's own the error says itself what it means.
func (dialect) Class(ctx context.Context, wrote bool, err error) (is sqlerr.Class, known bool) {
	if errors.Is(err, dblock.ErrOutcomeUnknown) || errors.Is(err, dblock.ErrUnavailable) || errors.Is(err, dblock.ErrConflict) ||
		errors.Is(err, dblock.ErrBusy) ||
		mysql.ErrorNumber(err) == 0 && ctx.Err() == nil && !isBroken(err) {
		return is, false
	}
	if !wrote {
		err = sqlerr.Unwritten(err)
	}
	return classOf(ctx, err), true
}

// classOf is mysql.Classify of a statement, and not of a commit: one that was never sent is not
// unresolved.
func classOf(_ context.Context, err error) sqlerr.Class {
	if mysql.NeverSent(err) {
		return sqlerr.Unavailable
	}
	return mysql.Classify(err)
}

// isBroken reports that there is no connection, or not any more. A context's error may be one of
// the caller's own, and does not count.
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

// isMissing reports that there is no such table.
func isMissing(err error) bool {
	n := mysql.ErrorNumber(err)
	return n == mysql.NoSuchTable || n == mysql.UnknownDatabase
}
