package mysqlinventory

import (
	"context"
	"database/sql"

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
	return mysql.Briefly(on)
}
