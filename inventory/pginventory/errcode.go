package pginventory

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// SQLSTATEs that are told apart here, from https://www.postgresql.org/docs/current/errcodes-appendix.html.
const (
	uniqueViolation      = "23505"
	checkViolation       = "23514"
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

// keyTimeout bounds, in milliseconds, how long the stock stays locked for an order that somebody
// else is writing at this moment. A batch that is sold together writes its orders first and then
// takes the stock: it may be waiting for us.
const keyTimeout = "20"

// keyTaken says that somebody else was writing an order of the same key.
type keyTaken struct{ error }

func (e *keyTaken) Unwrap() error { return e.error }

// orKeyTaken is for statements that wait under keyTimeout. (Where it was a longer wait that ended,
// for the stock, the next attempt finds out.)
func orKeyTaken(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == lockNotAvailable {
		return &keyTaken{err}
	}
	return err
}

// Fault tells what an error means.
func (d *database) Fault(err error) engine.Fault {
	var uncommitted *engine.Uncommitted
	safe := errors.As(err, &uncommitted) || neverSent(err)
	var refused *pgconn.ConnectError
	if errors.As(err, &refused) {
		return engine.Unreachable
	}
	var taken *keyTaken
	if errors.As(err, &taken) {
		return engine.Duplicate
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return fault(pg.Code, safe)
	}
	switch {
	case !safe:
		return engine.Lost
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return engine.Busy // it waited too long, for a lock or for a connection
	default:
		return engine.Unreachable
	}
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
func fault(code string, safe bool) engine.Fault {
	switch code {
	case serializationFailure, deadlockDetected:
		return engine.Retry
	case uniqueViolation:
		return engine.Duplicate
	case lockNotAvailable, queryCanceled:
		return engine.Busy
	case undefinedTable, invalidSchemaName:
		return engine.NoSchema
	case readOnlyTransaction, tooManyConnections:
		return engine.Unreachable
	case raiseException:
		return engine.Poison
	}
	switch code[:2] {
	case classData, classIntegrity:
		return engine.Poison
	case classConnection, classOperator:
		if safe {
			return engine.Unreachable
		}
		return engine.Lost
	default:
		return engine.Other
	}
}
