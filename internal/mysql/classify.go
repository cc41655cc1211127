package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Classify returns the class of an error.
func Classify(err error) sqlerr.Class {
	if err == nil {
		return sqlerr.Unclassified
	}
	unwritten := sqlerr.IsUnwritten(err)
	var server *mysqldriver.MySQLError
	var dial *net.OpError
	switch {
	case errors.As(err, &server):
		return ofServer(server, unwritten)
	case errors.Is(err, ErrTooLong), errors.Is(err, mysqldriver.ErrPktTooLarge): // the driver refuses to send more than its maxAllowedPacket
		return sqlerr.BadInput
	case errors.As(err, &dial) && dial.Op == "dial" && !errors.Is(err, context.Canceled):
		return sqlerr.Unavailable // nothing was sent: the network alone kept it waiting
	case !unwritten:
		return sqlerr.Unresolved
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return sqlerr.Busy // it waited too long, for a lock or for a connection
	default:
		return sqlerr.Unavailable
	}
}

// ClassifyOwn is Classify for an error of dblock's own statements. A unique key of the host's that
// it names is thus one that a trigger, or an index, of one row has met. A table of the host's is
// one of a trigger, which fails for all rows: the server opens all tables of a trigger at once. No
// AUTO_INCREMENT column of dblock's can be exhausted: its lock did not come in time.
func ClassifyOwn(err error) sqlerr.Class {
	var server *mysqldriver.MySQLError
	switch {
	case !errors.As(err, &server):
		return Classify(err)
	case server.Number == autoIncLocked:
		return sqlerr.Busy
	case !namesOthers(server):
		return Classify(err)
	case server.Number == NoSuchTable:
		return sqlerr.Unclassified
	}
	return sqlerr.BadInput
}

// How the text of an error names a table and a key, in any of the server's languages. What stands
// before the key may have quotes in it.
var (
	namedTable = regexp.MustCompile(`^[^']*'(?:[^']*\.)?([^'.]*)'`)
	namedKey   = regexp.MustCompile(`'(?:([^'.]*)\.)?([^'.]*)'[^']*$`)
)

// namesOthers reports that an error names a table, or a unique key, that is not dblock's. Classify
// a key that is taken MySQL names 'table.key', and MariaDB 'key': there a primary key may be of any
// table.
func namesOthers(err *mysqldriver.MySQLError) bool {
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

// NeverSent reports that nothing of a statement reached the server.
func NeverSent(err error) bool {
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone)
}

// IsBroken reports whether an error says that a connection is lost.
func IsBroken(err error) bool {
	var network net.Error
	return NeverSent(err) || errors.Is(err, mysqldriver.ErrInvalidConn) || errors.As(err, &network)
}

// IsDead reports that a connection broke that had been opened: others may not be.
func IsDead(err error) bool {
	var dial *net.OpError
	return IsBroken(err) && !(errors.As(err, &dial) && dial.Op == "dial")
}

// Sent is the error of a statement, marked if nothing of it can have reached the server.
func Sent(err error) error {
	if NeverSent(err) {
		return sqlerr.Unwritten(err)
	}
	return err
}

// IsLocked reports that a row was locked for longer than a statement would wait.
func IsLocked(err error) bool {
	var server *mysqldriver.MySQLError
	return errors.As(err, &server) && (server.Number == lockWaitTimeout || server.Number == lockNoWait)
}

// WithHint adds to the error of a server that takes no writes what to do about it.
func WithHint(err error) error {
	var server *mysqldriver.MySQLError
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

// ErrorNumber is that of an error of the server's, 0 for others.
func ErrorNumber(err error) uint16 {
	var server *mysqldriver.MySQLError
	if errors.As(err, &server) {
		return server.Number
	}
	return 0
}

// IsConflict reports that the server rolled the transaction back, or asks for it, for the sake of
// others: all of it may be run again.
func IsConflict(err error) bool {
	var server *mysqldriver.MySQLError
	return errors.As(err, &server) && (isConflict(server) || server.Number == namedLockDeadlock)
}

// IsDeadlock reports that transactions, or sessions with named locks, waited for each other, and
// this one was chosen to end.
func IsDeadlock(err error) bool {
	var server *mysqldriver.MySQLError
	return errors.As(err, &server) && (server.Number == deadlock || server.Number == namedLockDeadlock)
}

// IsNoSavepoint reports that a savepoint is not there, nor, perhaps, the transaction that set it.
func IsNoSavepoint(err error) bool {
	var server *mysqldriver.MySQLError
	return errors.As(err, &server) && server.Number == noSuchSavepoint
}

// isConflict leaves out the deadlock of named locks: the transaction stands until its owner rolls
// it back.
func isConflict(err *mysqldriver.MySQLError) bool { return ofServer(err, true) == sqlerr.Retryable }

// ofServer returns the class of the server's own error. Of two numbers only the text shows the
// class.
func ofServer(err *mysqldriver.MySQLError, unwritten bool) sqlerr.Class {
	number := err.Number
	switch {
	case number == cantCommit && strings.Contains(err.Message, handlerDeadlock):
		number = deadlock
	case number == unknownError && strings.Contains(err.Message, "multi-table update"):
		number = queryInterrupted
	}
	return sqlerr.OfNumber(number, string(err.SQLState[:]), unwritten)
}
