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
	if err := begin(ctx, conn); err != nil {
		return fault.NoWrite(err)
	}
	commit, err := fn(d.on(conn))
	if err != nil || !commit {
		ended = rollback(ctx, conn)
		return fault.NoWrite(err)
	}
	_, err = conn.ExecContext(ctx, "COMMIT")
	ended = err == nil
	return err
}

func begin(ctx context.Context, conn *sql.Conn) error {
	if _, err := conn.ExecContext(ctx, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"); err != nil {
		return err
	}
	_, err := conn.ExecContext(ctx, "START TRANSACTION READ WRITE")
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
