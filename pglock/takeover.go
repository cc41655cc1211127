package pglock

import (
	"context"

	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/postgres"
)

// Evict is two statements, each in a snapshot of its own. A third one ends what still guards for a
// member that is gone and would never end. If that fails, the member is gone all the same; the next
// call tries again.
func (d *leaseDriver) Evict(ctx context.Context, m member.ID) (gone bool, err error) {
	gone, err = d.Members.Evict(ctx, m)
	if gone {
		_, _ = d.q.EndStuckGuards(ctx, d.db, postgres.UUID(m))
	}
	return gone, err
}
