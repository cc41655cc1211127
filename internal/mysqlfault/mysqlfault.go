// Package mysqlfault tells what errors of MySQL, of MariaDB and of their driver mean.
package mysqlfault

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/internal/schema"
)

// Of tells what an error means.
func Of(err error) fault.Fault {
	if err == nil {
		return fault.Other
	}
	var uncommitted *fault.Uncommitted
	safe := errors.As(err, &uncommitted)
	var server *mysql.MySQLError
	var dial *net.OpError
	switch {
	case errors.As(err, &server):
		if isConflict(server) {
			return fault.Retry
		}
		if string(server.SQLState[:2]) == classUser {
			return fault.Poison // a trigger's SIGNAL, with whatever number
		}
		if server.Number == unknownError && strings.Contains(server.Message, "multi-table update") {
			return ofNumber(queryInterrupted, safe)
		}
		return ofNumber(server.Number, safe)
	case errors.Is(err, mysql.ErrPktTooLarge): // the driver refuses to send more than its maxAllowedPacket
		return fault.Poison
	case errors.As(err, &dial) && dial.Op == "dial" && !errors.Is(err, context.Canceled):
		return fault.Unreachable // nothing was sent, and nobody but the network kept it waiting
	case !safe:
		return fault.Lost
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fault.Busy // it waited too long, for a lock or for a connection
	default:
		return fault.Unreachable
	}
}

// OfOwn is Of for an error of dblock's own statements. A unique key of the host's that it names is
// thus one that a trigger, or an index, of one row has met. A table of the host's is one of a
// trigger, which fails for all rows: the server opens all tables of a trigger at once.
func OfOwn(err error) fault.Fault {
	var server *mysql.MySQLError
	if !errors.As(err, &server) || !namesOthers(server) {
		return Of(err)
	}
	if server.Number == NoSuchTable {
		return fault.Other
	}
	return fault.Poison
}

// How the text of an error names a table and a key, in any of the server's languages. What stands
// before the key may have quotes in it.
var (
	namedTable = regexp.MustCompile(`^[^']*'(?:[^']*\.)?([^'.]*)'`)
	namedKey   = regexp.MustCompile(`'(?:([^'.]*)\.)?([^'.]*)'[^']*$`)
)

// namesOthers tells that an error names a table, or a unique key, that is not dblock's. Of a key
// that is taken MySQL names 'table.key', and MariaDB 'key': there a primary key may be of any
// table.
func namesOthers(err *mysql.MySQLError) bool {
	switch err.Number {
	case NoSuchTable:
		name := namedTable.FindStringSubmatch(err.Message)
		return name != nil && !strings.HasPrefix(name[1], schema.Prefix)
	case duplicateEntry:
		name := namedKey.FindStringSubmatch(err.Message)
		isOthers := name != nil && name[1] != "" && !strings.HasPrefix(name[1], schema.Prefix)
		return isOthers || name != nil && name[2] != "PRIMARY" && name[2] != ticketKey
	}
	return false
}

// ticketKey is the one unique key of dblock's that is no primary key.
const ticketKey = "ticket"

// NeverSent tells that nothing of a statement reached the server.
func NeverSent(err error) bool {
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone)
}

// IsLocked tells that a row was locked for longer than a statement would wait.
func IsLocked(err error) bool {
	var server *mysql.MySQLError
	return errors.As(err, &server) && (server.Number == lockWaitTimeout || server.Number == lockNoWait)
}

// Hinted adds to the error of a server that takes no writes what to do about it.
func Hinted(err error) error {
	var server *mysql.MySQLError
	if !errors.As(err, &server) {
		return err
	}
	switch server.Number {
	case optionPreventsIt: // the option is in the text alone: --read-only, --super-read-only, --innodb-read-only
		if !strings.Contains(strings.ReplaceAll(server.Message, "_", "-"), "read-only") {
			return err
		}
	case readOnlyServer, readOnlyMode, readOnlySchema:
	default:
		return err
	}
	return fmt.Errorf("the server is read-only: connect to the primary, or call again once it is not: %w", err)
}

// Number is that of an error of the server's, 0 for others.
func Number(err error) uint16 {
	var server *mysql.MySQLError
	if errors.As(err, &server) {
		return server.Number
	}
	return 0
}

// IsConflict tells that the server rolled the transaction back, or asks for it, for the sake of others: all of it may be run again.
func IsConflict(err error) bool {
	var server *mysql.MySQLError
	return errors.As(err, &server) && (isConflict(server) || server.Number == namedLockDeadlock)
}

// IsDeadlock tells that transactions, or sessions with named locks, waited for each other, and this one was chosen to end.
func IsDeadlock(err error) bool {
	var server *mysql.MySQLError
	return errors.As(err, &server) && (server.Number == deadlock || server.Number == namedLockDeadlock)
}

// IsNoSavepoint tells that a savepoint is not there, nor, perhaps, the transaction that set it.
func IsNoSavepoint(err error) bool {
	var server *mysql.MySQLError
	return errors.As(err, &server) && server.Number == noSuchSavepoint
}

// isConflict leaves out the deadlock of named locks: the transaction stands, till its owner rolls it back.
func isConflict(err *mysql.MySQLError) bool {
	switch err.Number {
	case deadlock, recordChanged, rollbackDuringCommit:
		return true
	case cantCommit: // the reason is in the text alone
		return strings.Contains(err.Message, handlerDeadlock)
	default:
		return string(err.SQLState[:]) == serializationFailure
	}
}

// IsDenied tells that the user may not do that to a database, table or column.
func IsDenied(err error) bool {
	var server *mysql.MySQLError
	if !errors.As(err, &server) {
		return false
	}
	switch server.Number {
	case databaseDenied, tableDenied, columnDenied:
		return true
	}
	return false
}

// ofNumber sorts what the server itself said. After all of it but a lost connection and an
// interrupted commit the transaction is rolled back for certain.
func ofNumber(number uint16, safe bool) fault.Fault {
	switch number {
	case duplicateEntry:
		return fault.Duplicate
	case lockWaitTimeout, lockNoWait:
		return fault.Busy
	case queryInterrupted, statementTimeout, maxStatementTime:
		if safe {
			return fault.Busy
		}
		return fault.Lost // a commit that waited for a replica, say, and stands
	case NoSuchTable, UnknownDatabase:
		return fault.NoSchema
	case tooManyConnections, tooManyOfUser, userLimitReached, hostBlocked, hostNotPrivileged, accessDenied, noPassword, mustChangePassword,
		passwordExpired, accountLocked, diskFull, outOfMemory, outOfSortMemory, outOfResources, tableFull,
		optionPreventsIt, ReadOnlyTransaction, readOnlyServer, readOnlyMode, readOnlySchema, idleTooLong, notPrepared:
		return fault.Unreachable
	case serverShutdown, connectionKilled, sessionKilled, cantCommit:
		if safe {
			return fault.Unreachable
		}
		return fault.Lost
	case checkViolated, checkViolatedMariaDB, outOfRange, dataTooLong, valueOutOfRange, unhandledUserSignal,
		constraintFails, rowIsReferenced, cannotBeNull, fieldHasNoDefault, incorrectStringValue, packetTooLarge, triggerCausedConflict:
		return fault.Poison
	default:
		return fault.Other
	}
}
