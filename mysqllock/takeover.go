package mysqllock

import (
	"context"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Evict deletes the member's row, and looks in a statement of its own whether it is gone.
func (e *engine) Evict(ctx context.Context, id member.ID) (gone bool, err error) {
	err = e.once(ctx, func(on mysqldb.DBTX) error { return e.q.Evict(ctx, on, id[:]) })
	if err != nil {
		return false, sqlerr.Unwritten(err) // an eviction gives nobody anything
	}
	var stands int64
	err = e.read(ctx, func(on mysqldb.DBTX) (err error) {
		stands, err = e.q.MemberStands(ctx, on, id[:])
		return err
	})
	return stands == 0, err
}
