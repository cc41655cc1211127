package lease

import (
	"context"
	"fmt"
	"slices"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/member"
)

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

// ForceRelease gives back what somebody else holds, if the token is right.
func (l *Locker) ForceRelease(ctx context.Context, key string, token int64) error {
	if err := dblock.CheckText("key", key, 1, dblock.MaxKeyBytes); err != nil {
		return err
	}
	held, err := l.List(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(held, func(h dblock.HeldLock) bool { return h.Key == key })
	switch {
	case i < 0:
		return fmt.Errorf("%w: nobody holds %q", dblock.ErrNotHeld, key)
	case held[i].Fence.Token != token:
		return fmt.Errorf("%w: %q is held with token %d by %s, not with %d", dblock.ErrNotHeld, key, held[i].Fence.Token, held[i].Holder, token)
	}
	got, err := l.engine.Release(ctx, []Back{{Key: key, Token: token, Handle: held[i].Fence.Handle}})
	switch {
	case err != nil:
		return l.explain(err, key)
	case got[0].Freed:
		return nil
	case got[0].Stood:
		return fmt.Errorf("%w: a guarded transaction of its holder is open on %q; try again", dblock.ErrBusy, key)
	}
	return fmt.Errorf("%w: %q was released, or taken over, at this moment", dblock.ErrNotHeld, key)
}
