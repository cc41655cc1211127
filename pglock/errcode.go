package pglock

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock/internal/lease"
)

// SQLSTATEs that are told apart here, from https://www.postgresql.org/docs/current/errcodes-appendix.html.
const (
	protocolViolation    = "08P01"
	readOnlyTransaction  = "25006"
	invalidSchemaName    = "3F000"
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	undefinedTable       = "42P01"
	tooManyConnections   = "53300"
	lockNotAvailable     = "55P03"
	queryCanceled        = "57014" // the server's statement_timeout, or an administrator
	raiseException       = "P0001" // a trigger's RAISE

	classConnection = "08"
	classData       = "22"
	classIntegrity  = "23"
	classOperator   = "57" // the server shuts down, crashed, or starts
)

// Fault tells what an error means.
func (*engine) Fault(err error) lease.Fault {
	safe := neverSent(err)
	var refused *pgconn.ConnectError
	if errors.As(err, &refused) {
		return lease.Unreachable
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return fault(pg.Code, safe)
	}
	switch {
	case !safe:
		return lease.Lost
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return lease.Busy // it waited too long, for a lock or for a connection
	default:
		return lease.Unreachable
	}
}

// isLocked tells that a row was locked for longer than a statement would wait.
func isLocked(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == lockNotAvailable
}

// neverSent tells that nothing of a statement reached the server. pgconn says so too of a connection
// that is closed, and means one that was closed before; but it reports that as well where the
// connection broke while it waited for the answer to a statement of the simple protocol, such as a
// commit.
func neverSent(err error) bool {
	return pgconn.SafeToRetry(err) && !errors.Is(err, pgconn.ErrConnClosed)
}

// fault sorts what the server itself said. After most of it the transaction is rolled back for
// certain; a shutdown may come while a commit waits for a replica.
func fault(code string, safe bool) lease.Fault {
	switch code {
	case serializationFailure, deadlockDetected:
		return lease.Retry
	case lockNotAvailable, queryCanceled:
		return lease.Busy
	case undefinedTable, invalidSchemaName:
		return lease.NoSchema
	case readOnlyTransaction, tooManyConnections:
		return lease.Unreachable
	case raiseException:
		return lease.Poison
	}
	switch code[:2] {
	case classData, classIntegrity:
		return lease.Poison
	case classConnection, classOperator:
		if safe {
			return lease.Unreachable
		}
		return lease.Lost
	default:
		return lease.Other
	}
}
