package postgres

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Classify returns the class of an error.
func Classify(err error) sqlerr.Class {
	if err == nil {
		return sqlerr.Unclassified
	}
	unwritten := sqlerr.IsUnwritten(err) || NeverSent(err)
	var refused *pgconn.ConnectError
	if errors.As(err, &refused) {
		return sqlerr.Unavailable
	}
	if errors.As(err, new(*UnusableError)) {
		return sqlerr.Unclassified
	}
	var server *pgconn.PgError
	if errors.As(err, &server) && server.Code != "" {
		is := sqlerr.OfState(server.Code, unwritten)
		if ofStalePlan(server.Routine) {
			return sqlerr.Unavailable
		}
		if is == sqlerr.Unclassified && endsSession(server) {
			return sqlerr.OfState(codeConnectionException, unwritten)
		}
		return is
	}
	switch {
	case !unwritten:
		return sqlerr.Unresolved
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return sqlerr.Busy // it waited too long, for a lock or for a connection
	default:
		return sqlerr.Unavailable
	}
}

// RefusesNotify reports whether the server refused a statement because of its notification: its
// queue is full, or EXECUTE on pg_notify was revoked. Nothing was written.
func RefusesNotify(err error) bool {
	var server *pgconn.PgError
	if !errors.As(err, &server) {
		return false
	}
	return server.Code == codeLimitExceeded || server.Code == CodeNotPermitted && strings.Contains(server.Message, "pg_notify")
}

// UnusableError refuses a connection before a statement is sent.
type UnusableError struct{ Reason string }

func (e *UnusableError) Error() string {
	return fmt.Sprintf("%v: the connections have %s", dblock.ErrUnsupported, e.Reason)
}

// Unwrap returns dblock.ErrUnsupported.
func (e *UnusableError) Unwrap() error { return dblock.ErrUnsupported }

// CheckClientEncoding refuses a session whose texts the server converts. The driver always sends
// UTF-8, so names other than ASCII would be stored as others.
func CheckClientEncoding(encoding string) error {
	if encoding == "UTF8" {
		return nil
	}
	return &UnusableError{Reason: "client_encoding = " + encoding + ", but the driver sends UTF8: take client_encoding out of the " +
		"connection string, and out of what SET, ALTER ROLE and ALTER DATABASE have set"}
}

// ofStalePlan reports that a routine of the server refuses statements whose table was altered since
// they were prepared, or described. The driver does so again.
func ofStalePlan(routine string) bool {
	return routine == "RevalidateCachedQuery" || routine == "PortalSetResultFormat"
}

// ClassifyOwn is Classify for an error of dblock's own statements, which call no functions of the
// host's. A column that is not there is thus one of dblock's. A function that the error came from
// is thus of a trigger, and what it ends with is one row's, as is what a unique index of the host's
// refuses. Conflicts and timeouts stay what they are.
func ClassifyOwn(err error) sqlerr.Class {
	is := Classify(err)
	var server *pgconn.PgError
	if !errors.As(err, &server) || errors.As(err, new(*pgconn.ConnectError)) || endsSession(server) {
		return is
	}
	isOthers := server.Code == codeUniqueViolation && !isOwnKey(server.ConstraintName)
	if isOthers || isFromFunction(server) && is != sqlerr.Retryable && is != sqlerr.Busy {
		return sqlerr.BadInput
	}
	if server.Code == CodeUndefinedColumn {
		return sqlerr.NoSchema
	}
	return is
}

// NeverSent reports that the server did not get a statement to run. pgconn says so too of a
// connection that is closed, and means one that was closed before. It also says so if the
// connection broke while it waited for the reply to a statement of the simple protocol, such as a
// commit. A batch whose statements could not be prepared is never sent.
func NeverSent(err error) bool {
	return errors.As(err, new(pgx.ErrPreprocessingBatch)) || pgconn.SafeToRetry(err) && !errors.Is(err, pgconn.ErrConnClosed)
}

// IsBroken recognizes a connection that broke, or was closed.
func IsBroken(err error) bool {
	return slices.ContainsFunc([]error{driver.ErrBadConn, pgconn.ErrConnClosed, net.ErrClosed, io.EOF, io.ErrUnexpectedEOF},
		func(is error) bool { return errors.Is(err, is) }) || errors.As(err, new(net.Error))
}

// IsDead reports that a connection broke that had been opened: others may not be.
func IsDead(err error) bool { return IsBroken(err) && !errors.As(err, new(*pgconn.ConnectError)) }

// IsLocked reports that a row was locked for longer than a statement would wait.
func IsLocked(err error) bool { return Code(err) == codeLockNotAvailable }

// IsConflict reports that the server rolled the transaction back, or asks for it, for the sake of
// others: all of it may be run again. A migration that altered a table of a prepared statement is
// one of these others.
func IsConflict(err error) bool { return IsUnserializable(err) || IsDeadlock(err) || isStalePlan(err) }

func isStalePlan(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && ofStalePlan(server.Routine)
}

// IsDeadlock reports that transactions waited for each other, and this one was chosen to end.
func IsDeadlock(err error) bool { return Code(err) == codeDeadlockDetected }

// IsUnserializable reports that in REPEATABLE READ or above a row had changed.
func IsUnserializable(err error) bool { return Code(err) == codeSerializationFailure }

// Violates reports that a CHECK, or a unique or primary key, of that name would not hold.
func Violates(err error, constraint string) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == codeCheckViolation || pg.Code == codeUniqueViolation) && pg.ConstraintName == constraint
}

// LacksValue reports that a column of that name, which must not be, would be NULL.
func LacksValue(err error, column string) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == codeNotNullViolation && pg.ColumnName == column
}

// RefusesParameters reports whether a pooler, or the server's system, refuses parameters of a
// session.
func RefusesParameters(err error) bool {
	code := Code(err)
	return code == codeProtocolViolation || code == codeInvalidParameter
}

// Code is the SQLSTATE of an error of the server's, empty for others.
func Code(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// endsSession reports that the server has closed the connection, with whatever code: by
// transaction_timeout, for example.
func endsSession(err *pgconn.PgError) bool {
	severity := cmp.Or(err.SeverityUnlocalized, err.Severity)
	return severity == "FATAL" || severity == "PANIC"
}

// IsFromFunction reports that an error of the server's came from a function in a procedural
// language.
func IsFromFunction(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && isFromFunction(server)
}

// isFromFunction reports that an error came from a function in a procedural language, as the server
// says in any of its languages: PL/pgSQL function audit() line 3 at RAISE.
func isFromFunction(err *pgconn.PgError) bool {
	return strings.Contains(err.Where, "PL/") && strings.Contains(err.Where, "()")
}

// isOwnKey reports that a constraint is the primary key of one of dblock's tables. They have no
// other unique indexes.
func isOwnKey(constraint string) bool {
	return strings.HasPrefix(constraint, schema.Prefix) && strings.HasSuffix(constraint, "_pkey")
}
