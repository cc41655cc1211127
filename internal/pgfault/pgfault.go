// Package pgfault tells what errors of Postgres and of pgx mean.
package pgfault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/internal/schema"
)

// Of tells what an error means.
func Of(err error) fault.Fault {
	if err == nil {
		return fault.Other
	}
	var uncommitted *fault.Uncommitted
	safe := errors.As(err, &uncommitted) || NeverSent(err)
	var refused *pgconn.ConnectError
	if errors.As(err, &refused) {
		return fault.Unreachable
	}
	if errors.As(err, new(*UnusableError)) {
		return fault.Other
	}
	var server *pgconn.PgError
	if errors.As(err, &server) && server.Code != "" {
		is := ofCode(server.Code, safe)
		if server.Routine == stalePlan {
			return fault.Unreachable
		}
		if is == fault.Other && endsSession(server) {
			return ofClass(classConnection, safe)
		}
		return is
	}
	switch {
	case !safe:
		return fault.Lost
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fault.Busy // it waited too long, for a lock or for a connection
	default:
		return fault.Unreachable
	}
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

// stalePlan is the routine of the server that refuses a prepared statement whose table was altered.
// The driver prepares it again.
const stalePlan = "RevalidateCachedQuery"

// OfOwn is Of for an error of dblock's own statements, which call no functions of the host's. A column
// that is not there is thus one of dblock's. A function that the error came from is thus of a trigger, and what it ends with is one row's, as is
// what a unique index of the host's refuses. Conflicts and timeouts stay what they are.
func OfOwn(err error) fault.Fault {
	is := Of(err)
	var server *pgconn.PgError
	if !errors.As(err, &server) || errors.As(err, new(*pgconn.ConnectError)) || endsSession(server) {
		return is
	}
	isOthers := server.Code == uniqueViolation && !isOwnKey(server.ConstraintName)
	if isOthers || isOfFunction(server) && is != fault.Retry && is != fault.Busy {
		return fault.Poison
	}
	if server.Code == UndefinedColumn {
		return fault.NoSchema
	}
	return is
}

// NeverSent tells that nothing of a statement reached the server. pgconn says so too of a connection
// that is closed, and means one that was closed before; but it reports that as well where the
// connection broke while it waited for the answer to a statement of the simple protocol, such as a
// commit.
func NeverSent(err error) bool {
	return pgconn.SafeToRetry(err) && !errors.Is(err, pgconn.ErrConnClosed)
}

// IsLocked tells that a row was locked for longer than a statement would wait.
func IsLocked(err error) bool { return Code(err) == lockNotAvailable }

// IsConflict tells that the server rolled the transaction back, or asks for it, for the sake of others: all of it may be run again.
func IsConflict(err error) bool { return IsUnserializable(err) || IsDeadlock(err) }

// IsDeadlock tells that transactions waited for each other, and this one was chosen to end.
func IsDeadlock(err error) bool { return Code(err) == deadlockDetected }

// IsUnserializable tells that in REPEATABLE READ or above a row had changed.
func IsUnserializable(err error) bool { return Code(err) == serializationFailure }

// Violates tells that a CHECK, or a unique or primary key, of that name would not hold.
func Violates(err error, constraint string) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == checkViolation || pg.Code == uniqueViolation) && pg.ConstraintName == constraint
}

// LacksValue tells that a column of that name, which must not be, would be NULL.
func LacksValue(err error, column string) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == notNullViolation && pg.ColumnName == column
}

// RefusesParameters tells that a pooler lets sessions begin only without the parameters that were asked for.
func RefusesParameters(err error) bool { return Code(err) == protocolViolation }

// Code is the SQLSTATE of an error of the server's, empty for others.
func Code(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// ofCode sorts what the server itself said. After most of it the transaction is rolled back for
// certain; a shutdown may come while a commit waits for a replica.
func ofCode(code string, safe bool) fault.Fault {
	switch code {
	case serializationFailure, deadlockDetected:
		return fault.Retry
	case uniqueViolation:
		return fault.Duplicate
	case lockNotAvailable, queryCanceled:
		return fault.Busy
	case UndefinedTable, InvalidSchemaName:
		return fault.NoSchema
	case ReadOnlyTransaction, tooManyConnections, noSuchStatement:
		return fault.Unreachable
	case OutOfMemory:
		return fault.Full
	}
	return ofClass(code[:min(2, len(code))], safe) // a server that is not Postgres may send less than five characters
}

func ofClass(class string, safe bool) fault.Fault {
	switch class {
	case classData, classIntegrity, classProcedure:
		return fault.Poison
	case classResources:
		return fault.Unreachable
	case classConnection, classOperator, classSystem:
		if safe {
			return fault.Unreachable
		}
		return fault.Lost
	}
	if !slices.Contains(classes, class) { // a trigger has chosen it
		return fault.Poison
	}
	return fault.Other
}

// endsSession tells that the server has closed the connection, with whatever code: by transaction_timeout, for example.
func endsSession(err *pgconn.PgError) bool {
	severity := cmp.Or(err.SeverityUnlocalized, err.Severity)
	return severity == "FATAL" || severity == "PANIC"
}

// IsOfFunction tells that an error of the server's came from a function in a procedural language.
func IsOfFunction(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && isOfFunction(server)
}

// isOfFunction tells that an error came from a function in a procedural language, as the server
// says in any of its languages: PL/pgSQL function audit() line 3 at RAISE.
func isOfFunction(err *pgconn.PgError) bool {
	return strings.Contains(err.Where, "PL/") && strings.Contains(err.Where, "()")
}

// isOwnKey tells that a constraint is the primary key of one of dblock's tables. They have no other
// unique indexes.
func isOwnKey(constraint string) bool {
	return strings.HasPrefix(constraint, schema.Prefix) && strings.HasSuffix(constraint, "_pkey")
}
