package mysqllock

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/internal/mysqlfault"
)

// attempts is how often a statement is sent that had no chance: its connection was dead, or it was
// rolled back for others' sake.
const attempts = 4

// once runs one autocommit statement on a connection of the pool. To have the connection first tells
// what never reached the server from what may have: the pool's own methods don't.
func (e *engine) once(ctx context.Context, statement func(mysqldb.DBTX) error) error {
	for n := 1; ; n++ {
		conn, err := e.pool.Conn(ctx)
		if err != nil {
			return fault.NoWrite(err)
		}
		err = statement(e.on(conn))
		_ = conn.Close() // back to the pool, which drops a broken one
		if n == attempts || !unsent(err) && e.Fault(err) != fault.Retry {
			return sent(err)
		}
	}
}

// read is once for what only reads.
func (e *engine) read(ctx context.Context, query func(mysqldb.DBTX) error) error {
	return fault.NoWrite(e.once(ctx, query))
}

// unsent tells that the driver found the connection dead before it sent anything.
func unsent(err error) bool { return errors.Is(err, driver.ErrBadConn) }

// sent is the error of a statement, marked where nothing of it can have reached the server.
func sent(err error) error {
	if mysqlfault.NeverSent(err) {
		return fault.NoWrite(err)
	}
	return err
}
