package pgoptimistic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/internal/pgfault"
)

// Wrong says what an error of a statement's means. wrote: it was one that writes.
func (room) Wrong(ctx context.Context, what string, wrote bool, err error) error {
	if pgfault.Code(err) == "" && !broken(ctx, err) {
		return fmt.Errorf("optimistic: %s: %w", what, err) // an argument that pgx can't send, or a transaction that has ended
	}
	known := err
	if !wrote {
		known = fault.NoWrite(err)
	}
	switch pgfault.Of(known) {
	case fault.Retry:
		return fmt.Errorf("%w: %s: roll back, read it again and repeat the change: %w", dblock.ErrConflict, what, err)
	case fault.Busy:
		return fmt.Errorf("%w: %s: nothing was written: %w", dblock.ErrBusy, what, err)
	case fault.Unreachable:
		return fmt.Errorf("%w: %s: nothing was written: %w", dblock.ErrUnavailable, what, err)
	case fault.Lost:
		return fmt.Errorf("%w: %s: no answer came: read it to learn whether it was written: %w", dblock.ErrOutcomeUnknown, what, err)
	default:
		return fmt.Errorf("optimistic: %s: %w", what, err)
	}
}

// broken tells that the connection failed, or that ctx ended.
func broken(ctx context.Context, err error) bool {
	return ctx.Err() != nil || pgconn.Timeout(err) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, pgconn.ErrConnClosed) || errors.As(err, new(*pgconn.ConnectError)) || errors.As(err, new(net.Error))
}
