package mysqlinventory

import (
	"context"
	"errors"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/inventory/internal/engine"
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

// Fault tells what an error means.
func (d *database) Fault(err error) engine.Fault {
	var uncommitted *engine.Uncommitted
	safe := errors.As(err, &uncommitted)
	var server *mysql.MySQLError
	switch {
	case errors.As(err, &server):
		return fault(server.Number, safe)
	case !safe:
		return engine.Lost
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return engine.Busy // it waited too long, for a lock or for a connection
	default:
		return engine.Unreachable
	}
}

// fault sorts what the server itself said. After all of it but a lost connection and an
// interrupted commit the transaction is rolled back for certain.
func fault(number uint16, safe bool) engine.Fault {
	switch number {
	case deadlock, lockWaitTimeout, recordChanged, cantCommit, rollbackDuringCommit:
		return engine.Retry
	case duplicateEntry:
		return engine.Duplicate
	case queryInterrupted, statementTimeout, maxStatementTime:
		if safe {
			return engine.Busy
		}
		return engine.Lost // a commit that waited for a replica, say, and stands
	case noSuchTable, unknownDatabase:
		return engine.NoSchema
	case tooManyConnections, optionPreventsIt, readOnlyTransaction, readOnlyServer, readOnlyMode:
		return engine.Unreachable
	case serverShutdown, connectionKilled:
		if safe {
			return engine.Unreachable
		}
		return engine.Lost
	case checkViolated, checkViolatedMariaDB, outOfRange, dataTooLong, valueOutOfRange, unhandledUserSignal,
		constraintFails, cannotBeNull, fieldHasNoDefault, incorrectStringValue, packetTooLarge, triggerCausedConflict:
		return engine.Poison
	default:
		return engine.Other
	}
}
