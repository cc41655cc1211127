package pgoptimistic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/optimistic/internal/driver"
)

// isUnavailable tells that the connection is to blame for the error of a statement that wrote nothing.
func isUnavailable(err error) bool {
	return postgres.Code(err) != "" && postgres.Classify(sqlerr.Unwritten(err)) == sqlerr.Unavailable || isBroken(err)
}

// classOf is the class of a statement's error. It has none if ctx ended before the statement was sent.
func classOf(ctx context.Context, err error) sqlerr.Class {
	if postgres.NeverSent(err) && ctx.Err() != nil {
		return sqlerr.Unclassified
	}
	return postgres.Classify(err)
}

// Wrong says what the error of a Table's own statement means, which is never the caller's.
func (dialect) Wrong(ctx context.Context, what string, wrote bool, err error) error {
	if isUnsent(err) || !wrote && postgres.Code(err) == "" && ctx.Err() == nil && !isBroken(err) {
		return fmt.Errorf("optimistic: %s: %w", what, err)
	}
	if isAltered(err) {
		return fmt.Errorf("%w: %s: %w, nothing was written: roll back and repeat: %w", dblock.ErrConflict, what, driver.ErrAltered, err)
	}
	known := err
	if !wrote {
		known = sqlerr.Unwritten(err)
	}
	return driver.Wrap(postgres.Classify(known), what, err)
}

// isUnsent tells of an argument that pgx can't send, and of a transaction that has ended. pgx has no type for the first; whatever
// else it may be that is not the server's, such as an error of TLS, can have come when the statement had run.
func isUnsent(err error) bool {
	text := err.Error()
	return errors.Is(err, pgx.ErrTxClosed) || strings.HasPrefix(text, "failed to encode args[") || strings.HasPrefix(text, "unable to encode ")
}

// isBroken tells that there is no connection, or not any more. A context's error may be one of the caller's own, and tells nothing.
func isBroken(err error) bool {
	switch {
	case errors.As(err, new(*pgconn.ConnectError)):
		return true
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false
	}
	return pgconn.SafeToRetry(err) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, new(net.Error)) || errors.Is(err, pgconn.ErrConnClosed)
}

// isAltered tells of a statement that failed because of unaltered. If it returns a column that has
// another type, the server itself refuses it: that error has no code of its own, only its origin.
func isAltered(err error) bool {
	var server *pgconn.PgError
	if !errors.As(err, &server) {
		return false
	}
	return server.Code == "22P02" && strings.Contains(server.Message, alteredMark) ||
		server.Code == "0A000" && server.Routine == "RevalidateCachedQuery"
}

// ofTrigger marks the error of a statement that failed because of suppressed.
func ofTrigger(err error) error {
	var server *pgconn.PgError
	if !errors.As(err, &server) || server.Code != postgres.CodeInvalidText {
		return err
	}
	_, place, found := strings.Cut(server.Message, suppressedMark)
	place, _, _ = strings.Cut(place, ".")
	n, failed := strconv.Atoi(place)
	if !found || failed != nil {
		return err
	}
	return &driver.SuppressedError{Place: max(n-1, 0), Err: err}
}
