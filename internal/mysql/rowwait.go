package mysql

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/dblock-go/dblock/db/mysqldb"
)

// rowWait is how long MariaDB lets a statement wait for a row, in seconds. MySQL takes no such
// bound with a statement: there the session is bounded, or the statement passes over what is
// locked.
type rowWait int

const (
	asTheSession rowWait = 0
	atOnce       rowWait = -1 // not at all, if it writes; SKIP LOCKED fails with error 1180 then, where a row is locked
)

// Briefly has statements wait for a row, and for a table, for a second at most, on MariaDB.
func Briefly(on mysqldb.DBTX) mysqldb.DBTX {
	c := waiting(on, 1).(Inline)
	c.tableWait = true
	return c
}

// AtOnce has statements that write wait for no row, on MariaDB. They fail as locked then.
func AtOnce(on mysqldb.DBTX) mysqldb.DBTX { return waiting(on, atOnce) }

// Waiting has statements wait for a row as long as WithLockWait says, on MariaDB.
func Waiting(ctx context.Context, on mysqldb.DBTX) mysqldb.DBTX {
	return waiting(on, rowWait(lockWaitOf(ctx)))
}

func waiting(on mysqldb.DBTX, wait rowWait) mysqldb.DBTX {
	c := on.(Inline)
	c.rowWait = wait
	return c
}

type lockWait struct{}

// WithLockWait has the transactions of Pool.In, and statements on Waiting, wait for a row for d, in
// whole seconds. Without it they wait for a second.
func WithLockWait(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, lockWait{}, max(1, int(math.Ceil(d.Seconds()))))
}

func lockWaitOf(ctx context.Context) (seconds int) {
	if n, ok := ctx.Value(lockWait{}).(int); ok {
		return n
	}
	return int(LockWait / time.Second)
}

// settings are those that MariaDB takes with a statement.
func (c Inline) settings(reads bool) string {
	wait := int(c.rowWait)
	switch {
	case !c.mariaDB, c.rowWait == asTheSession && (!reads || c.maxTime == 0):
		return ""
	case c.rowWait == atOnce && reads:
		wait = 1
	case c.rowWait == atOnce:
		wait = 0
	}
	var all []string
	if c.rowWait != asTheSession {
		all = append(all, fmt.Sprintf("innodb_lock_wait_timeout = %d", wait))
	}
	if c.tableWait {
		all = append(all, "lock_wait_timeout = 1")
	}
	if reads && c.maxTime > 0 {
		all = append(all, fmt.Sprintf("max_statement_time = %v", c.maxTime.Seconds()))
	}
	return "SET STATEMENT " + strings.Join(all, ", ") + " FOR "
}
