package mysqlinventory

import (
	"context"
	"errors"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// noWait asks for the row before it writes anything: most of those who ask are refused.
func (d *database) noWait(ctx context.Context, r engine.Row) (engine.Verdict, error) {
	return d.outright(ctx, func(on mysqldb.DBTX) (engine.Verdict, error) {
		held, err := d.q.HoldNoWait(ctx, on, []byte(r.SKU), r.Qty)
		switch {
		case locked(err):
			return engine.Taken, nil
		case err != nil || len(held) == 0:
			return engine.TooFew, err
		}
		return d.writeOne(ctx, on, r, 0)
	})
}

// locked tells that NOWAIT found the row locked: MariaDB says that the wait was too long.
func locked(err error) bool {
	var server *mysql.MySQLError
	return errors.As(err, &server) && (server.Number == lockNoWait || server.Number == lockWaitTimeout)
}
