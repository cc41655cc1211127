package mysqllock

import (
	"context"
	"errors"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/lease"
)

// Error numbers that are told apart here, from
// https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html and
// https://mariadb.com/kb/en/mariadb-error-code-reference/.
const (
	tooManyConnections    = 1040
	serverShutdown        = 1053
	unknownDatabase       = 1049
	noSuchTable           = 1146
	cantCommit            = 1180 // a cluster refused the transaction: it is rolled back
	lockWaitTimeout       = 1205
	deadlock              = 1213
	optionPreventsIt      = 1290 // --read-only
	queryInterrupted      = 1317
	readOnlyTransaction   = 1792
	readOnlyServer        = 1836
	recordChanged         = 1020 // MariaDB, where innodb_snapshot_isolation is on
	rollbackDuringCommit  = 3101 // a group refused the transaction: it is rolled back
	statementTimeout      = 3024
	maxStatementTime      = 1969 // the same on MariaDB
	connectionKilled      = 1927
	checkViolated         = 3819
	checkViolatedMariaDB  = 4025
	outOfRange            = 1264
	dataTooLong           = 1406
	valueOutOfRange       = 1690
	unhandledUserSignal   = 1644 // a trigger's SIGNAL
	constraintFails       = 1452
	cannotBeNull          = 1048
	fieldHasNoDefault     = 1364
	incorrectStringValue  = 1366
	packetTooLarge        = 1153
	readOnlyMode          = 1874 // InnoDB is in read-only mode
	triggerCausedConflict = 1442
	lockNoWait            = 3572 // NOWAIT found the row locked; MariaDB says lockWaitTimeout
)

// errLocked says that somebody's transaction holds a row for too long. It is Busy.
var errLocked = errors.New("dblock: the lease is locked by a transaction")

// uncommitted marks an error that left nothing written.
type uncommitted struct{ error }

func (e *uncommitted) Unwrap() error { return e.error }

// noWrite marks an error that left nothing written. It returns nil for nil.
func noWrite(err error) error {
	if err == nil {
		return nil
	}
	return &uncommitted{err}
}

// partial is an error after which a part of a batch stands.
type partial struct{ error }

func (e *partial) Unwrap() error { return e.error }

// half is the error of a batch, a part of which may have been written before.
func half(err error, written bool) error {
	if err == nil || !written {
		return err
	}
	return &partial{err}
}

// Fault tells what an error means.
func (e *engine) Fault(err error) lease.Fault {
	var safe *uncommitted
	var part *partial
	var server *mysql.MySQLError
	switch {
	case err == nil:
		return lease.Other
	case errors.As(err, &part):
		return lease.Lost
	case errors.Is(err, errLocked):
		return lease.Busy
	case errors.As(err, &server):
		return fault(server.Number, errors.As(err, &safe))
	case !errors.As(err, &safe):
		return lease.Lost
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return lease.Busy // it waited too long, for a connection
	default:
		return lease.Unreachable
	}
}

// fault sorts what the server itself said. After all of it but a lost connection and an interrupted
// commit the statement is rolled back for certain.
func fault(number uint16, safe bool) lease.Fault {
	switch number {
	case deadlock, recordChanged, cantCommit, rollbackDuringCommit:
		return lease.Retry
	case lockWaitTimeout, lockNoWait:
		return lease.Busy
	case queryInterrupted, statementTimeout, maxStatementTime:
		if safe {
			return lease.Busy
		}
		return lease.Lost // a commit that waited for a replica, say, and stands
	case noSuchTable, unknownDatabase:
		return lease.NoSchema
	case tooManyConnections, optionPreventsIt, readOnlyTransaction, readOnlyServer, readOnlyMode:
		return lease.Unreachable
	case serverShutdown, connectionKilled:
		if safe {
			return lease.Unreachable
		}
		return lease.Lost
	case checkViolated, checkViolatedMariaDB, outOfRange, dataTooLong, valueOutOfRange, unhandledUserSignal,
		constraintFails, cannotBeNull, fieldHasNoDefault, incorrectStringValue, packetTooLarge, triggerCausedConflict:
		return lease.Poison
	default:
		return lease.Other
	}
}
