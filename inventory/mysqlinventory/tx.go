package mysqlinventory

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"time"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/internal/mysqlfault"
	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// inTx runs fn in a READ COMMITTED transaction of its own, and commits it where fn says so. An
// error of the commit itself leaves it open whether it took place.
//
// It is not a *sql.Tx, because Commit and Rollback of one take no context: where the network goes
// silent they would hang for minutes, and with them everybody who waits for the same row.
func (d *database) inTx(ctx context.Context, fn func(mysqldb.DBTX) (commit bool, err error)) error {
	return d.in(ctx, func(conn *sql.Conn) (bool, error) {
		commit, err := fn(d.bounded(ctx, d.on(conn)))
		return commit, d.waited(ctx, err)
	})
}

// readCommitted begins a transaction on MariaDB, whatever the session's default.
var readCommitted = []string{"SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "START TRANSACTION READ WRITE"}

// The server goes on waiting for a lock when its client has left, for 50 s by default, and keeps the connection. So it is to wait for a
// second at most, which is the shortest that MySQL takes; a transaction that waited so long is run again. MariaDB sets that beside each
// statement, see bounded; MySQL for the session, beside what sets the level of the next transaction, and back when it has ended.
var readCommittedMySQL = []string{
	"SET @dblock_wait = @@SESSION.innodb_lock_wait_timeout, SESSION innodb_lock_wait_timeout = 1, " +
		"@@transaction_isolation = 'READ-COMMITTED'",
	"START TRANSACTION READ WRITE",
}

// lockWait is for how long a connection whose caller has left counts as in use, as it is on the server: that second, and another one,
// as MySQL looks once a second for waits that are over.
const lockWait = 2 * time.Second

const withOwnBound = "SET SESSION innodb_lock_wait_timeout = @dblock_wait"

func (d *database) in(ctx context.Context, fn func(*sql.Conn) (commit bool, err error)) error {
	conn, err := d.pool.Conn(ctx)
	if err != nil {
		return fault.NoWrite(err)
	}
	ended, lingers := false, false
	defer func() {
		switch {
		case lingers:
			time.AfterFunc(lockWait, func() { _ = conn.Close() })
			return
		case !ended:
			discard(conn)
		case !d.mariaDB:
			restore(ctx, conn)
		}
		_ = conn.Close() // back to the pool, unless it was discarded
	}()
	begin := readCommittedMySQL
	if d.mariaDB {
		begin = readCommitted
	}
	for _, statement := range begin {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return fault.NoWrite(err)
		}
	}
	commit, err := fn(conn)
	if err != nil || !commit {
		if lingers = ctx.Err() != nil && isClosed(conn); !lingers {
			ended = rollback(ctx, conn)
		}
		return fault.NoWrite(err)
	}
	_, err = conn.ExecContext(ctx, "COMMIT")
	ended = err == nil
	return err
}

// restore gives a session back what it had, or closes its connection. A goroutine of its own would save the round trip, but the next
// transaction would open another connection meanwhile.
func restore(ctx context.Context, conn *sql.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if _, err := conn.ExecContext(ctx, withOwnBound); err != nil {
		discard(conn)
	}
}

// waited marks the error of a statement that waited for as long as it may, if that was to be brief: then it is not run again.
func (d *database) waited(ctx context.Context, err error) error {
	if engine.IsBrief(ctx) && d.Fault(err) == fault.Retry && mysqlfault.IsLocked(err) {
		return &bounded{err}
	}
	return err
}

// bounded bounds for how long a statement waits for a lock on MariaDB.
func (d *database) bounded(ctx context.Context, on mysqldb.DBTX) mysqldb.DBTX {
	switch {
	case !d.mariaDB:
		return on
	case engine.IsBrief(ctx):
		return within{on, notAtAll}
	}
	return within{on, forASecond}
}

const (
	notAtAll   = "SET STATEMENT innodb_lock_wait_timeout = 0 FOR "
	forASecond = "SET STATEMENT innodb_lock_wait_timeout = 1 FOR "
)

type within struct {
	mysqldb.DBTX
	write string // the bound of a statement that writes
}

// atOnce is a bounded connection on which statements that write wait for no lock.
func atOnce(on mysqldb.DBTX) mysqldb.DBTX {
	if w, is := on.(within); is {
		on = within{w.DBTX, notAtAll}
	}
	return on
}

func (w within) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return w.DBTX.ExecContext(ctx, w.write+query, args...)
}

// QueryContext never bounds by 0: SKIP LOCKED fails with error 1180 then, where a row is locked.
func (w within) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return w.DBTX.QueryContext(ctx, forASecond+query, args...)
}

// rollback ends the transaction even where ctx has ended.
func rollback(ctx context.Context, conn *sql.Conn) (ended bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, err := conn.ExecContext(ctx, "ROLLBACK")
	return err == nil
}

// isClosed tells that the driver has closed a connection, as it does if a context ends during a statement.
func isClosed(conn *sql.Conn) (closed bool) {
	_ = conn.Raw(func(c any) error {
		v, ok := c.(driver.Validator)
		closed = ok && !v.IsValid()
		return nil
	})
	return closed
}

// discard closes a connection whose transaction may still be open: the pool must not get it.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
}
