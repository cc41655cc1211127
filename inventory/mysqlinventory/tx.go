package mysqlinventory

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"time"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/fault"
)

// inTx runs fn in a READ COMMITTED transaction of its own, and commits it where fn says so. An
// error of the commit itself leaves it open whether it took place.
//
// It is not a *sql.Tx, because Commit and Rollback of one take no context: where the network goes
// silent they would hang for minutes, and with them everybody who waits for the same row.
func (d *database) inTx(ctx context.Context, fn func(mysqldb.DBTX) (commit bool, err error)) error {
	return d.in(ctx, readCommitted, func(conn *sql.Conn) (bool, error) { return fn(d.on(conn)) })
}

// inSnapshot runs fn, which only reads, in a transaction of its own: what it reads stood there when it first read.
func (d *database) inSnapshot(ctx context.Context, fn func(mysqldb.DBTX) error) error {
	return d.in(ctx, snapshot, func(conn *sql.Conn) (bool, error) { return false, fn(d.on(conn)) })
}

// What begins a transaction, whatever the session's default.
var (
	readCommitted = []string{"SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "START TRANSACTION READ WRITE"}
	snapshot      = []string{"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "START TRANSACTION READ ONLY"}
)

func (d *database) in(ctx context.Context, begin []string, fn func(*sql.Conn) (commit bool, err error)) error {
	conn, err := d.pool.Conn(ctx)
	if err != nil {
		return fault.NoWrite(err)
	}
	ended := false
	defer func() {
		if !ended {
			discard(conn)
		}
		_ = conn.Close() // back to the pool, unless it was discarded
	}()
	for _, statement := range begin {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return fault.NoWrite(err)
		}
	}
	commit, err := fn(conn)
	if err != nil || !commit {
		ended = rollback(ctx, conn)
		return fault.NoWrite(err)
	}
	_, err = conn.ExecContext(ctx, "COMMIT")
	ended = err == nil
	return err
}

// rollback ends the transaction even where ctx has ended.
func rollback(ctx context.Context, conn *sql.Conn) (ended bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, err := conn.ExecContext(ctx, "ROLLBACK")
	return err == nil
}

// discard closes a connection whose transaction may still be open: the pool must not get it.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
}
