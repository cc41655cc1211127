// Package mysqlfault tells what errors of MySQL, of MariaDB and of their driver mean.
package mysqlfault

import (
	"context"
	"errors"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/fault"
)

// Error numbers that are told apart here, from
// https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html and
// https://mariadb.com/kb/en/mariadb-error-code-reference/.
const (
	tooManyConnections    = 1040
	serverShutdown        = 1053
	duplicateEntry        = 1062
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

// Of tells what an error means.
func Of(err error) fault.Fault {
	if err == nil {
		return fault.Other
	}
	var uncommitted *fault.Uncommitted
	safe := errors.As(err, &uncommitted)
	var server *mysql.MySQLError
	switch {
	case errors.As(err, &server):
		return ofNumber(server.Number, safe)
	case !safe:
		return fault.Lost
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fault.Busy // it waited too long, for a lock or for a connection
	default:
		return fault.Unreachable
	}
}

// IsLocked tells that a row was locked for longer than a statement would wait.
func IsLocked(err error) bool {
	var server *mysql.MySQLError
	return errors.As(err, &server) && (server.Number == lockWaitTimeout || server.Number == lockNoWait)
}

// ofNumber sorts what the server itself said. After all of it but a lost connection and an
// interrupted commit the transaction is rolled back for certain.
func ofNumber(number uint16, safe bool) fault.Fault {
	switch number {
	case deadlock, recordChanged, cantCommit, rollbackDuringCommit:
		return fault.Retry
	case duplicateEntry:
		return fault.Duplicate
	case lockWaitTimeout, lockNoWait:
		return fault.Busy
	case queryInterrupted, statementTimeout, maxStatementTime:
		if safe {
			return fault.Busy
		}
		return fault.Lost // a commit that waited for a replica, say, and stands
	case noSuchTable, unknownDatabase:
		return fault.NoSchema
	case tooManyConnections, optionPreventsIt, readOnlyTransaction, readOnlyServer, readOnlyMode:
		return fault.Unreachable
	case serverShutdown, connectionKilled:
		if safe {
			return fault.Unreachable
		}
		return fault.Lost
	case checkViolated, checkViolatedMariaDB, outOfRange, dataTooLong, valueOutOfRange, unhandledUserSignal,
		constraintFails, cannotBeNull, fieldHasNoDefault, incorrectStringValue, packetTooLarge, triggerCausedConflict:
		return fault.Poison
	default:
		return fault.Other
	}
}
