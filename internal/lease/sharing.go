package lease

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/ctxerr"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/root"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// sharing acquires what several may have: keys in shared mode, and permits.
type sharing struct {
	*exclusive
	makes singleflight.Group // of semaphores, by key and limit
}

// atOnce asks for a shared lease or for permits, unless other calls of this process wait for the
// key. Calls that come meanwhile share the same statement.
func (h *sharing) atOnce(ctx context.Context, r root.Request) (*dblock.Lock, *dblock.HeldError, error) {
	if err := h.queues.refusal(r); err != nil {
		return nil, nil, err
	}
	return h.requestShared(ctx, r)
}

// requestShared asks the database for a shared lease or for permits. It returns the lock, or a
// holder that excludes it.
func (h *sharing) requestShared(ctx context.Context, r root.Request) (*dblock.Lock, *dblock.HeldError, error) {
	var gone member.ID
	made := 0
	for n := 1; ; n++ {
		got, err := h.once(ctx, r, func(a *AcquireRequest) { a.DeadMember = gone })
		if err != nil {
			return nil, nil, err
		}
		answer := got.AcquireResult
		switch {
		case answer.Token != 0:
			lock, err := h.grant(ctx, nil, got, r)
			return lock, nil, err
		case r.Mode == dblock.ModePermit && !answer.MemberGone && answer.Stored != r.Limit:
			if made++; answer.Stored != 0 || made > tries { // one that was made has no permits: its row is bad
				return nil, nil, &dblock.LimitError{Key: r.Key, Stored: answer.Stored, Asked: r.Limit}
			}
			if err := h.makeSemaphore(ctx, r); err != nil {
				return nil, nil, err
			}
			continue
		case len(answer.Dead) > 0 && n < tries:
			h.reap(ctx, r, answer.Dead)
			continue
		case answer.Holder.Dead && n < tries:
			answer.Held = false
			if answer.Holder.Member != gone && h.evictions.evict(ctx, h.requester, answer.Holder.Member) {
				gone = answer.Holder.Member
				continue
			}
		}
		refused, err := h.pauseOrRefuse(ctx, r, got.inc, answer, n)
		if refused != nil || err != nil {
			return nil, refused, err
		}
	}
}

// makeSemaphore makes a request's semaphore if there is none. Calls that need the same one share
// the statement, which outlives each of them.
func (h *sharing) makeSemaphore(ctx context.Context, r root.Request) error {
	made := h.makes.DoChan(fmt.Sprintf("%d %s", r.Limit, r.Key), func() (any, error) {
		bound, cancel := context.WithTimeout(h.ending, h.bound())
		defer cancel()
		err := h.Driver.Make(bound, []string{r.Key}, r.Limit)
		if err != nil && h.ending.Err() != nil {
			err = context.Cause(h.ending)
		}
		return nil, err
	})
	var err error
	select {
	case answer := <-made:
		err = answer.Err
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return h.unanswered(ctx, sqlerr.Unwritten(err), r) // what is made has no holder
	}
	return nil
}

// SetPermits gives a semaphore another number of permits.
func (a *Admin) SetPermits(ctx context.Context, key string, limit int) error {
	if err := root.CheckText("key", key, 1, dblock.MaxLockKeyBytes); err != nil {
		return err
	}
	if err := root.CheckLimit(limit); err != nil {
		return err
	}
	err := a.change(ctx, a.bound(), fmt.Sprintf("the number of permits of %q", key), func(ctx context.Context) error {
		return a.Inspector.SetPermits(ctx, key, limit)
	})
	if err == nil {
		a.waits.wake(key)
	}
	return err
}

// change runs a statement that grants nothing: what it changes is named in errors.
func (a *Admin) change(ctx context.Context, bound time.Duration, what string, statement func(context.Context) error) error {
	if err := a.notClosed(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s was not changed: %w", what, ctxerr.Of(ctx))
	}
	bounded, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	err := statement(bounded)
	if err == nil {
		return nil
	}
	return sqlerr.Wrap(a.Traits.Classify(err), err, "changing "+what, "no reply; it may be changed")
}
