package mysqlqueue

import (
	"context"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/member"
)

// Evict is two statements, each in a snapshot of its own.
func (d *database) Evict(ctx context.Context, m member.ID) (gone bool, err error) {
	if err := d.written(ctx, func(on mysqldb.DBTX) error { return d.q.Evict(ctx, on, m[:]) }); err != nil {
		return false, err
	}
	stands, err := d.Stands(ctx, m)
	return !stands, err
}

// Stands reads the row.
func (d *database) Stands(ctx context.Context, m member.ID) (bool, error) {
	n, err := d.q.MemberStands(ctx, d.on(d.db), m[:])
	return n > 0, err
}
