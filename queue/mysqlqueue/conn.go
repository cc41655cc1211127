package mysqlqueue

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"time"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/fault"
)

// attempts is how often a statement is sent whose connection was dead before.
const attempts = 4

// readCommitted begins a transaction, whatever the session's default.
var readCommitted = []string{"SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "START TRANSACTION READ WRITE"}

// inTx runs fn in a READ COMMITTED transaction of its own, and commits it where fn says so. An error of the commit itself leaves it open
// whether it took place.
//
// It is not a *sql.Tx, because Commit and Rollback of one take no context: where the network goes silent they would hang for minutes.
func (d *database) inTx(ctx context.Context, fn func(mysqldb.DBTX) (commit bool, err error)) error {
	conn, err := d.begin(ctx)
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
	commit, err := fn(d.on(conn))
	if err != nil || !commit {
		ended = rollback(ctx, conn)
		return fault.NoWrite(err)
	}
	_, err = conn.ExecContext(ctx, "COMMIT")
	ended = err == nil
	return err
}

// begin begins a transaction on a connection of the pool, which may have dead ones.
func (d *database) begin(ctx context.Context) (*sql.Conn, error) {
	for n := 1; ; n++ {
		conn, err := d.pool.Conn(ctx)
		if err != nil {
			return nil, err
		}
		for _, statement := range readCommitted {
			if _, err = conn.ExecContext(ctx, statement); err != nil {
				break
			}
		}
		if err == nil {
			return conn, nil
		}
		discard(conn)
		_ = conn.Close()
		if n == attempts || !errors.Is(err, driver.ErrBadConn) {
			return nil, err
		}
	}
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
