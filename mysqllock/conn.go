package mysqllock

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// once runs one autocommit statement on a connection of the pool. One that had no chance is
// repeated: its connection was dead, or it was rolled back for others' sake. It gets the connection
// first, so that it knows whether a statement was sent: the pool's own methods don't say.
func (c *conns) once(ctx context.Context, statement func(mysqldb.DBTX) error) error {
	return c.repeat(ctx, c.db.Conn, c.db.Put, func(conn *sql.Conn) error { return statement(c.db.On(conn)) })
}

func (c *conns) repeat(
	ctx context.Context, take func(context.Context) (*sql.Conn, error), giveBack func(ctx context.Context, conn *sql.Conn, took time.Duration),
	statement func(*sql.Conn) error,
) error {
	for n := 1; ; n++ {
		conn, err := take(ctx)
		if err != nil {
			return sqlerr.Unwritten(err)
		}
		began := time.Now()
		err = statement(conn)
		giveBack(ctx, conn, time.Since(began))
		if n == mysql.Attempts || !errors.Is(err, driver.ErrBadConn) && c.Classify(err) != sqlerr.Retryable {
			return mysql.Sent(err)
		}
	}
}

// These are the settings of the connections on which locks are acquired. Each statement waits for a
// lock, and on MySQL for a locked table, for a second, the shortest bound that MySQL takes. At READ
// UNCOMMITTED a statement that acquires reads the row of its member without a lock: see
// queries/mysql/lease.sql.
const (
	bound = "SET @dblock_wait = @@SESSION.innodb_lock_wait_timeout, @dblock_level = @@SESSION.%[1]s, " +
		"SESSION innodb_lock_wait_timeout = 1, SESSION %[1]s = 'READ-UNCOMMITTED'"
	unbound = "SET SESSION innodb_lock_wait_timeout = @dblock_wait, SESSION %s = @dblock_level"

	boundTables   = ", @dblock_table_wait = @@SESSION.lock_wait_timeout, SESSION lock_wait_timeout = 1"
	unboundTables = ", SESSION lock_wait_timeout = @dblock_table_wait"

	boundWait = time.Second
)

// bounds returns the statements that give a session these settings, and take them back.
func bounds(db *mysql.Database) (set, setBack string) {
	if db.MariaDB {
		return fmt.Sprintf(bound, "tx_isolation"), fmt.Sprintf(unbound, "tx_isolation")
	}
	const level = "transaction_isolation"
	return fmt.Sprintf(bound, level) + boundTables, fmt.Sprintf(unbound, level) + unboundTables
}

// grant is once for a statement that acquires. It waits for a lock for boundWait at most, and no
// heartbeat waits for it.
func (c *conns) grant(ctx context.Context, statement func(mysqldb.DBTX) error) error {
	return c.repeat(ctx, c.kept.Take, c.kept.Put, func(conn *sql.Conn) error { return statement(c.db.On(conn)) })
}

// grantOne is grant for a single row, which takes no time: if grant would need more round trips
// than once, it is once.
func (c *conns) grantOne(ctx context.Context, statement func(mysqldb.DBTX) error) error {
	if c.kept.HasSpare() {
		return c.grant(ctx, statement)
	}
	return c.once(ctx, statement)
}

// grantAtOnce is grant that fails as locked on MariaDB if a row is. On MySQL the statement passes
// over such rows.
func (c *conns) grantAtOnce(ctx context.Context, statement string, args []any) (rows, token int64, err error) {
	err = c.grant(ctx, func(on mysqldb.DBTX) error {
		rows, token, err = execChange(ctx, mysql.AtOnce(on), statement, args)
		return err
	})
	return rows, token, err
}

// grantFound is grant for a statement that writes rows which it has found and locked, with ON
// DUPLICATE KEY UPDATE: the server counts each as two.
func (c *conns) grantFound(ctx context.Context, statement string, args []any) (rows, token int64, err error) {
	err = c.grant(ctx, func(on mysqldb.DBTX) error {
		rows, token, err = execChange(ctx, on, statement, args)
		return err
	})
	return rows / 2, token, err
}

// boundUs is how long a statement may take at the server before it grants nothing: until its client
// gives up.
func boundUs(ctx context.Context) int64 {
	deadline, has := ctx.Deadline()
	if !has {
		return math.MaxInt64
	}
	return max(time.Until(deadline), 0).Microseconds()
}

// bounded is once for a statement that makes or deletes rows, which would wait for a transaction
// that has locked a row or a gap. It waits for boundWait on MySQL, and on MariaDB as wait says. It
// fails as locked then.
func (c *conns) bounded(ctx context.Context, wait func(mysqldb.DBTX) mysqldb.DBTX, statement func(mysqldb.DBTX) error) error {
	if c.db.MariaDB {
		return c.once(ctx, func(on mysqldb.DBTX) error { return statement(wait(on)) })
	}
	return c.grant(ctx, statement)
}

// read is once for a query.
func read[T any](ctx context.Context, e *conns, query func(mysqldb.DBTX) (T, error)) (answer T, err error) {
	err = e.once(ctx, func(on mysqldb.DBTX) error {
		answer, err = query(on)
		return err
	})
	return answer, sqlerr.Unwritten(err)
}
