package mysqlinventory

import (
	"context"
	"database/sql"
	"time"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// inTx runs fn in a READ COMMITTED transaction of its own, and commits it if fn says so. An
// error of the commit itself leaves it open whether it took place.
func (d *database) inTx(ctx context.Context, fn func(mysqldb.DBTX) (commit bool, err error)) error {
	return d.db.In(ctx, func(conn *sql.Conn) (bool, error) {
		commit, err := fn(d.bounded(ctx, d.db.On(conn)))
		return commit, d.waited(ctx, err)
	})
}

// waited marks the error of a statement that waited for as long as it may, if that was to be brief:
// then it is not run again.
func (d *database) waited(ctx context.Context, err error) error {
	if driver.IsBrief(ctx) && isRowLocked(err) && d.Failure(err).Class == sqlerr.Retryable {
		return &bounded{err}
	}
	return err
}

// bounded bounds for how long a statement waits for a lock on MariaDB. On MySQL the session is
// bounded.
func (d *database) bounded(ctx context.Context, on mysqldb.DBTX) mysqldb.DBTX {
	if driver.IsBrief(ctx) {
		return mysql.AtOnce(on)
	}
	return mysql.Waiting(ctx, on)
}

// patiently is a context in which statements wait for a row for two fifths of the time that is
// left: first they wait for their place in the server's queue, and then for the row. A wait that is
// shorter than the queue would begin again at its end each time.
func patiently(ctx context.Context) context.Context {
	if deadline, ok := ctx.Deadline(); ok && !driver.IsBrief(ctx) {
		return mysql.WithLockWait(ctx, time.Until(deadline)*2/5)
	}
	return ctx
}
