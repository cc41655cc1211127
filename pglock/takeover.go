package pglock

import (
	"context"

	"github.com/dblock-go/dblock/internal/member"
)

// Evict is two statements, each in a snapshot of its own. A third one ends what still guards for a member that is gone and
// would never end. If that fails, the member is gone all the same; the next call tries again.
func (e *engine) Evict(ctx context.Context, m member.ID) (gone bool, err error) {
	on := e.on(e.pool)
	if err := e.q.Evict(ctx, on, id(m)); err != nil {
		return false, err
	}
	stands, err := e.q.MemberStands(ctx, on, id(m))
	if err == nil && !stands {
		_, _ = e.q.EndStuckGuards(ctx, on, id(m))
	}
	return !stands, err
}
