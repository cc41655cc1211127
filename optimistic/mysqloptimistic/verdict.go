package mysqloptimistic

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/internal/mysqlfault"
	"github.com/dblock-go/dblock/optimistic"
)

// unwritten says what the error of a statement means that has left nothing written: it reads, or its transaction is rolled back.
func unwritten(ctx context.Context, err error) error {
	switch {
	case optimistic.IsDefinite(err), ctx.Err() != nil:
		return err
	case mysqlfault.Number(err) != 0 && mysqlfault.Of(fault.NoWrite(err)) == fault.Unreachable, isBroken(err):
		return fmt.Errorf("%w: nothing was written: %w", dblock.ErrUnavailable, err)
	default:
		return err // it may well be the caller's own
	}
}

// isBroken tells that there is no connection, or not any more.
func isBroken(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	return mysqlfault.NeverSent(err) || errors.Is(err, mysql.ErrInvalidConn) || errors.As(err, new(net.Error))
}

// maybeWritten says what the error of a statement means that is a transaction by itself.
func maybeWritten(ctx context.Context, err error) error {
	if optimistic.IsDefinite(err) {
		return err
	}
	said := mysqlfault.Of(err)
	if mysqlfault.NeverSent(err) {
		said = fault.Unreachable
	}
	switch said {
	case fault.Unreachable:
		return fmt.Errorf("%w: nothing was written: %w", dblock.ErrUnavailable, err)
	case fault.Lost:
		return fmt.Errorf("%w: no answer came to a statement that writes: read the row again to see whether it is written: %w",
			dblock.ErrOutcomeUnknown, errors.Join(context.Cause(ctx), err))
	default:
		return err
	}
}
