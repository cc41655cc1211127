package lease

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/batch"
	"github.com/dblock-go/dblock/internal/ctxerr"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/root"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// ByKey compares what is listed.
func ByKey(a, b HeldLease) int {
	return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Mode, b.Mode), bytes.Compare(a.Handle[:], b.Handle[:]))
}

// Admin is what operators read and change.
type Admin struct {
	*base
	lists *batch.Queue[context.Context, []HeldLease]
}

const (
	maxLists     = 2               // at once
	listPatience = time.Second     // a list that takes longer than that has another one begin beside it
	listsBehind  = 3 * time.Second // a list goes on for that long when all callers have left
)

// newAdmin makes an Admin. Callers that ask for the list during a statement share the next one. So
// few are under way, however many callers come and go.
func newAdmin(b *base) *Admin {
	a := &Admin{base: b}
	a.lists = batch.New(batch.Options[context.Context, []HeldLease]{
		Run: func(_ context.Context, callers []context.Context, _ bool) ([]batch.Result[[]HeldLease], error) {
			ctx, cancel := context.WithTimeout(a.ending, longBound)
			defer cancel()
			go endBehind(ctx, callers, cancel)
			listed, err := a.Inspector.List(ctx, "")
			return slices.Repeat([]batch.Result[[]HeldLease]{{Value: listed}}, len(callers)), err
		},
		Key:         func(context.Context) string { return "" },
		Late:        func(context.Context, batch.Result[[]HeldLease]) {},
		MaxInFlight: maxLists, PerKey: maxLists, Patience: listPatience,
	})
	return a
}

// endBehind ends a list that all callers have left, after listsBehind: the connection of a
// statement that is cut off is of no use for a while.
func endBehind(list context.Context, callers []context.Context, end context.CancelFunc) {
	for _, caller := range callers {
		select {
		case <-caller.Done():
		case <-list.Done():
			return
		}
	}
	select {
	case <-time.After(listsBehind):
		end()
	case <-list.Done():
	}
}

// List reads what is held.
func (a *Admin) List(ctx context.Context) ([]dblock.HeldLock, error) {
	if err := a.notClosed(); err != nil {
		return nil, err
	}
	listed, err := a.lists.Do(ctx, ctx)
	if err != nil {
		return nil, a.notRead(ctx, err, "the list of held locks")
	}
	held := make([]dblock.HeldLock, len(listed))
	for i, x := range listed {
		held[i] = x.shown()
	}
	return held, nil
}

// Holder reads the holder of a key, or one of several. With ErrNotHeld it returns the token of the
// last acquisition, if that is known.
func (a *Admin) Holder(ctx context.Context, key string) (dblock.HeldLock, error) {
	if err := root.CheckText("key", key, 1, dblock.MaxLockKeyBytes); err != nil {
		return dblock.HeldLock{}, err
	}
	if err := a.notClosed(); err != nil {
		return dblock.HeldLock{}, err
	}
	bounded, cancel := context.WithTimeout(ctx, a.bound())
	defer cancel()
	listed, held, err := a.Inspector.Get(bounded, key)
	switch {
	case err != nil:
		return dblock.HeldLock{}, a.notRead(ctx, err, fmt.Sprintf("the holder of %q", key))
	case held:
		return listed.shown(), nil
	}
	last := dblock.HeldLock{Key: key, Fence: dblock.Fence{Key: key, Token: listed.Token}}
	return last, fmt.Errorf("%w: no process holds %q", dblock.ErrNotHeld, key)
}

// notClosed returns ErrClosed after Close.
func (t *tasks) notClosed() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return errNotSent()
	}
	return nil
}

// notRead explains the error of a statement that only reads: its outcome is never unknown.
func (a *Admin) notRead(ctx context.Context, err error, what string) error {
	if ctx.Err() != nil {
		return ctxerr.Of(ctx)
	}
	if closed := a.notClosed(); closed != nil {
		return closed
	}
	return sqlerr.Wrap(a.Traits.Classify(err).Harmless(), err, what+" was not read", "")
}

// shown is a lease as callers see it.
func (x HeldLease) shown() dblock.HeldLock {
	h := dblock.HeldLock{
		Key: x.Key, Mode: x.Mode, Permits: x.Permits, Limit: x.Limit,
		Fence:  dblock.Fence{Key: x.Key, Token: x.Token, Handle: x.Handle, Mode: x.Mode},
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

// ForceRelease releases a lock of any process if the token is right: one acquisition, or all that
// share it.
func (a *Admin) ForceRelease(ctx context.Context, key string, token int64) error {
	if err := root.CheckText("key", key, 1, dblock.MaxLockKeyBytes); err != nil {
		return err
	}
	if err := a.notClosed(); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, a.bound())
	defer cancel()
	held, err := a.Inspector.List(bounded, key)
	if err != nil {
		return a.notRead(ctx, err, fmt.Sprintf("the holder of %q", key))
	}
	if len(held) == 0 {
		return fmt.Errorf("%w: no process holds %q", dblock.ErrNotHeld, key)
	}
	other := held[0].shown()
	held = slices.DeleteFunc(held, func(x HeldLease) bool { return x.Token != token })
	if len(held) == 0 {
		return fmt.Errorf("%w: %q is held with token %d by %s, not with %d", dblock.ErrNotHeld, key, other.Fence.Token, other.Holder, token)
	}
	for _, x := range held {
		if err := a.forceRelease(ctx, x.shown().Fence); err != nil {
			return err
		}
	}
	return nil
}

func (a *Admin) forceRelease(ctx context.Context, f dblock.Fence) error {
	var got []ReleaseResult
	err := a.change(ctx, a.bound(), fmt.Sprintf("the holder of %q", f.Key), func(ctx context.Context) (err error) {
		got, err = a.Driver.Release(ctx, ReleaseBatch{
			releaseKind(f.Mode, a.o.Fair), []ReleaseRequest{{Key: f.Key, Token: f.Token, Handle: f.Handle, Mode: f.Mode}},
		})
		return err
	})
	switch {
	case err != nil:
		return err
	case got[0].Freed:
		return nil
	case got[0].Held:
		return fmt.Errorf("%w: a guarded transaction of its holder is open on %q; try again", dblock.ErrBusy, f.Key)
	}
	return fmt.Errorf("%w: %q was released, or taken over, at this moment", dblock.ErrNotHeld, f.Key)
}
