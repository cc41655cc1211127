package mysqllock

import (
	"context"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Evict deletes the member's row, and looks in a statement of its own whether it is gone.
func (d *leaseDriver) Evict(ctx context.Context, id member.ID) (gone bool, err error) {
	err = d.once(ctx, func(on mysqldb.DBTX) error { return d.q.Evict(ctx, on, id[:]) })
	if err != nil {
		return false, sqlerr.Unwritten(err) // an eviction grants nothing
	}
	stands, err := read(ctx, d.conns, func(on mysqldb.DBTX) (int64, error) {
		return d.q.IsMember(ctx, on, id[:])
	})
	return stands == 0, err
}
