package lease

import (
	"context"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/member"
)

// unused is for how long nobody has used what Sweep removes.
const unused = time.Hour

// Sweep tidies away what nobody has used for an hour.
func (l *Locker) Sweep(ctx context.Context) (removed int64, err error) {
	removed, err = l.engine.Sweep(ctx, unused)
	if err != nil {
		return removed, l.explain(err, "of the sweep")
	}
	return removed, nil
}

// List reads what is held.
func (l *Locker) List(ctx context.Context) ([]dblock.HeldLock, error) {
	listed, err := l.engine.List(ctx)
	if err != nil {
		return nil, l.explain(err, "of the list")
	}
	held := make([]dblock.HeldLock, len(listed))
	for i, x := range listed {
		held[i] = dblock.HeldLock{
			Key: x.Key, Fence: dblock.Fence{Key: x.Key, Token: x.Token, Handle: x.Handle},
			Holder: dblock.Holder{Label: x.Holder.Label, Token: x.Token},
			Age:    x.Age, Remaining: x.Holder.Remaining, Waiters: x.Waiters,
		}
		if held[i].Holder.Label == "" {
			held[i].Holder.Label = x.MemberLabel
		}
		if x.Holder.Member != (member.ID{}) {
			held[i].Holder.Member = x.Holder.Member.String()
		}
	}
	return held, nil
}
