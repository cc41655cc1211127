package mysqlqueue

import (
	"context"
	"database/sql"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/mysql"
)

// inTx runs fn in a READ COMMITTED transaction of its own, and commits it if fn says so. An error of the commit itself leaves it open
// whether it took place. A statement waits for a lock for a second at most.
func (d *database) inTx(ctx context.Context, fn func(mysqldb.DBTX) (commit bool, err error)) error {
	return d.db.In(ctx, func(conn *sql.Conn) (bool, error) { return fn(d.on(conn)) })
}

// written is inTx for one statement, which waits for locks while ctx lives.
func (d *database) written(ctx context.Context, fn func(mysqldb.DBTX) error) error {
	return patiently(ctx, func() error {
		return d.inTx(ctx, func(on mysqldb.DBTX) (commit bool, err error) { return true, fn(on) })
	})
}

// patiently runs a transaction again that waited for a lock for a second, while ctx lives.
func patiently(ctx context.Context, run func() error) error {
	for {
		if err := run(); !mysql.IsLocked(err) || ctx.Err() != nil {
			return err
		}
	}
}
