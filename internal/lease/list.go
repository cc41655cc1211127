package lease

import (
	"context"
	"fmt"
	"slices"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/fault"
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
		held[i] = x.shown()
	}
	return held, nil
}

// Holder reads who holds a key.
func (l *Locker) Holder(ctx context.Context, key string) (dblock.HeldLock, error) {
	if err := dblock.CheckText("key", key, 1, dblock.MaxKeyBytes); err != nil {
		return dblock.HeldLock{}, err
	}
	bounded, cancel := context.WithTimeout(ctx, l.bound())
	defer cancel()
	listed, held, err := l.engine.Look(bounded, key)
	switch {
	case err == nil && held:
		return listed.shown(), nil
	case err == nil:
		return dblock.HeldLock{}, fmt.Errorf("%w: nobody holds %q", dblock.ErrNotHeld, key)
	case ctx.Err() != nil:
		return dblock.HeldLock{}, context.Cause(ctx)
	case l.engine.Fault(err) == fault.Lost: // it only reads: nothing is in doubt
		return dblock.HeldLock{}, fmt.Errorf("%w: who holds %q: %w", dblock.ErrUnavailable, key, err)
	}
	return dblock.HeldLock{}, l.explain(err, key)
}

// shown is a lease as callers see it.
func (x Listed) shown() dblock.HeldLock {
	h := dblock.HeldLock{
		Key: x.Key, Fence: dblock.Fence{Key: x.Key, Token: x.Token, Handle: x.Handle},
		Holder: dblock.Holder{Label: x.Holder.Label, Token: x.Token},
		Age:    x.Age, Remaining: x.Holder.Remaining, Waiters: x.Waiters, Data: x.Data,
	}
	if h.Holder.Label == "" {
		h.Holder.Label = x.MemberLabel
	}
	if x.Holder.Member != (member.ID{}) {
		h.Holder.Member = x.Holder.Member.String()
	}
	return h
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
