package mysql

import (
	"fmt"

	"github.com/dblock-go/dblock/db/mysqldb"
)

// rowWait is how long MariaDB lets a statement wait for a row. MySQL takes no such bound with a
// statement: there the session is bounded, or the statement passes over what is locked.
type rowWait int

const (
	asTheSession rowWait = iota
	briefly              // LockWait
	atOnce               // not at all, if it writes; SKIP LOCKED fails with error 1180 then, where a row is locked
)

// Briefly has statements wait for a row for a second at most, on MariaDB.
func Briefly(on mysqldb.DBTX) mysqldb.DBTX { return waiting(on, briefly) }

// AtOnce has statements that write wait for no row, on MariaDB. They fail as locked then.
func AtOnce(on mysqldb.DBTX) mysqldb.DBTX { return waiting(on, atOnce) }

func waiting(on mysqldb.DBTX, wait rowWait) mysqldb.DBTX {
	c := on.(Inline)
	c.rowWait = wait
	return c
}

const (
	notAtAll   = "SET STATEMENT innodb_lock_wait_timeout = 0 FOR "
	forASecond = "SET STATEMENT innodb_lock_wait_timeout = 1 FOR "
)

// settings are those that MariaDB takes with a statement.
func (c Inline) settings(reads bool) string {
	bounded := c.rowWait != asTheSession
	switch {
	case !c.mariaDB:
		return ""
	case reads && c.maxTime > 0 && bounded:
		return fmt.Sprintf("SET STATEMENT innodb_lock_wait_timeout = 1, max_statement_time = %v FOR ", c.maxTime.Seconds())
	case reads && c.maxTime > 0:
		return fmt.Sprintf("SET STATEMENT max_statement_time = %v FOR ", c.maxTime.Seconds())
	case !bounded:
		return ""
	case c.rowWait == atOnce && !reads:
		return notAtAll
	}
	return forASecond
}
