package pgoptimistic

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/optimistic/internal/driver"
)

// isUnavailable reports that the connection is to blame for the error of a statement that wrote
// nothing.
func isUnavailable(err error) bool {
	return postgres.Code(err) != "" && postgres.Classify(sqlerr.Unwritten(err)) == sqlerr.Unavailable || isBroken(err)
}

// classOf is the class of a statement's error. It has none if ctx ended before the statement was
// sent.
func classOf(ctx context.Context, err error) sqlerr.Class {
	if postgres.NeverSent(err) && ctx.Err() != nil {
		return sqlerr.Unclassified
	}
	return postgres.Classify(err)
}

func (dialect) Class(ctx context.Context, wrote bool, err error) (is sqlerr.Class, known bool) {
	if isUnsent(err) || !wrote && postgres.Code(err) == "" && ctx.Err() == nil && !isBroken(err) {
		return is, false
	}
	if !wrote {
		err = sqlerr.Unwritten(err)
	}
	return postgres.Classify(err), true
}

// isUnsent reports whether pgx can't send an argument, or the transaction has ended. pgx has no
// type for the first; whatever else it may be that is not the server's, such as an error of TLS,
// can have come when the statement had run.
func isUnsent(err error) bool {
	text := err.Error()
	return errors.Is(err, pgx.ErrTxClosed) || strings.HasPrefix(text, "failed to encode args[") || strings.HasPrefix(text, "unable to encode ")
}

// isBroken reports that there is no connection, or not any more. A context's error may be one of
// the caller's own, and does not count.
func isBroken(err error) bool {
	switch {
	case errors.As(err, new(*pgconn.ConnectError)):
		return true
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false
	}
	return pgconn.SafeToRetry(err) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, new(net.Error)) || errors.Is(err, pgconn.ErrConnClosed)
}

// marked returns the class of an error that a condition of dblock's in the statement has raised:
// see unaltered and suppressed. If a statement returns a column that has another type, the server
// itself refuses it: that error has no code of its own, only its origin.
func marked(err error) error {
	var server *pgconn.PgError
	if !errors.As(err, &server) {
		return err
	}
	raised := server.Code == postgres.CodeInvalidText
	if raised && strings.Contains(server.Message, alteredMark) || server.Code == "0A000" && server.Routine == "RevalidateCachedQuery" {
		return &driver.AlteredError{Err: err}
	}
	_, place, found := strings.Cut(server.Message, suppressedMark)
	place, _, _ = strings.Cut(place, ".")
	n, failed := strconv.Atoi(place)
	if !raised || !found || failed != nil {
		return err
	}
	return &driver.SuppressedError{Place: max(n-1, 0), Err: err}
}
