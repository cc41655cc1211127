package mysqllock

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"time"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// once runs one autocommit statement on a connection of the pool. One that had no chance is
// repeated: its connection was dead, or it was rolled back for others' sake. To have the connection
// first tells what never reached the server from what may have: the pool's own methods don't.
func (e *leaseDriver) once(ctx context.Context, statement func(mysqldb.DBTX) error) error {
	return e.onConn(ctx, func(conn *sql.Conn) error { return statement(e.db.On(conn)) })
}

func (e *leaseDriver) onConn(ctx context.Context, statement func(*sql.Conn) error) error {
	for n := 1; ; n++ {
		conn, err := e.db.Conn(ctx)
		if err != nil {
			return sqlerr.Unwritten(err)
		}
		err = statement(conn)
		e.db.GiveBack(ctx, conn)
		if n == mysql.Attempts || !errors.Is(err, driver.ErrBadConn) && e.Classify(err) != sqlerr.Retryable {
			return mysql.Sent(err)
		}
	}
}

// These bound for how long MySQL lets the one statement between them wait for a lock: for a second,
// the least that there is. It runs at READ UNCOMMITTED. A statement that begins no transaction, for
// example a refused one, leaves that level to the next transaction, and unbound takes it back.
const (
	bound = "SET @dblock_wait = @@SESSION.innodb_lock_wait_timeout, @@SESSION.innodb_lock_wait_timeout = 1, " +
		"@@transaction_isolation = 'READ-UNCOMMITTED'"
	unbound = "SET @@SESSION.innodb_lock_wait_timeout = @dblock_wait, @@transaction_isolation = @@SESSION.transaction_isolation"

	boundWait = time.Second
)

// bounded is once for a statement that makes rows, which would wait for a transaction that has
// locked a row or a gap. It waits for boundWait on MySQL, and on MariaDB for as long as it is told.
// It fails as locked then.
func (e *leaseDriver) bounded(ctx context.Context, wait func(mysqldb.DBTX) mysqldb.DBTX, statement func(mysqldb.DBTX) error) error {
	if e.db.MariaDB {
		return e.once(ctx, func(on mysqldb.DBTX) error { return statement(wait(on)) })
	}
	return e.onConn(ctx, func(conn *sql.Conn) error {
		if _, err := conn.ExecContext(ctx, bound); err != nil {
			mysql.Discard(conn) // it may be set
			return sqlerr.Unwritten(err)
		}
		err := statement(e.db.On(conn))
		if !mysql.HasLeft(ctx, conn) {
			mysql.SetBack(ctx, conn, unbound)
		}
		return err
	})
}

// read is once for a query.
func read[T any](ctx context.Context, e *leaseDriver, query func(mysqldb.DBTX) (T, error)) (answer T, err error) {
	err = e.once(ctx, func(on mysqldb.DBTX) error {
		answer, err = query(on)
		return err
	})
	return answer, sqlerr.Unwritten(err)
}
