package mysqloptimistic

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/internal/mysqlfault"
)

// Wrong says what an error of a statement's means. wrote: it was one that writes.
func (room) Wrong(ctx context.Context, what string, wrote bool, err error) error {
	if errors.Is(err, dblock.ErrOutcomeUnknown) || errors.Is(err, dblock.ErrUnavailable) || errors.Is(err, dblock.ErrConflict) {
		return fmt.Errorf("optimistic: %s: %w", what, err) // of a transaction of UpdateMany's own
	}
	if mysqlfault.Number(err) == 0 && !broken(ctx, err) {
		return fmt.Errorf("optimistic: %s: %w", what, err) // an argument that can't be sent, or a transaction that has ended
	}
	known := err
	if !wrote {
		known = fault.NoWrite(err)
	}
	switch mysqlfault.Of(known) {
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
	return ctx.Err() != nil || errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, new(net.Error))
}

// isMissing tells that there is no such table.
func isMissing(err error) bool {
	n := mysqlfault.Number(err)
	return n == mysqlfault.NoSuchTable || n == mysqlfault.UnknownDatabase
}

// isTaken tells that there is a row with the key already. Another unique index is none of ours. Its name stands last in the text,
// on some servers behind that of the table.
func isTaken(err error, index string) bool {
	var server *mysql.MySQLError
	if !errors.As(err, &server) || mysqlfault.Of(err) != fault.Duplicate {
		return false
	}
	return strings.HasSuffix(server.Message, "'"+index+"'") || strings.HasSuffix(server.Message, "."+index+"'")
}
