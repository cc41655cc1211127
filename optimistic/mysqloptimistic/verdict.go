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
	"github.com/dblock-go/dblock/optimistic/internal/driver"
)

// isUnavailable tells that the connection is to blame for the error of a statement that wrote nothing.
func isUnavailable(err error) bool {
	return mysql.ErrorNumber(err) != 0 && mysql.Classify(sqlerr.Unwritten(err)) == sqlerr.Unavailable || isBroken(err)
}

// Wrong says what the error of a Table's own statement means, which is never the caller's.
func (dialect) Wrong(ctx context.Context, what string, wrote bool, err error) error {
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
	return driver.Wrap(classOf(ctx, known), what, err)
}

// classOf is mysql.Classify of a statement, and not of a commit: one that was never sent is not
// unresolved.
func classOf(_ context.Context, err error) sqlerr.Class {
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
