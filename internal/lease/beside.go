package lease

import (
	"context"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/root"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// atOnce asks for what several may have, unless others of this process stand in line for it. Those who come meanwhile
// ask, too, in the same statement.
func (l *Locker) atOnce(ctx context.Context, r root.Request) (*dblock.Lock, *dblock.HeldError, error) {
	if err := l.queues.refusal(r); err != nil {
		return nil, nil, err
	}
	return l.askBeside(ctx, r)
}

// askBeside asks the database for what several may have at once: the lock, or who keeps it from being granted.
func (l *Locker) askBeside(ctx context.Context, r root.Request) (*dblock.Lock, *dblock.HeldError, error) {
	var gone member.ID
	made := 0
	for n := 1; ; n++ {
		got, err := l.once(ctx, r, func(a *AcquireRequest) { a.Gone = gone })
		if err != nil {
			return nil, nil, err
		}
		answer := got.AcquireResult
		switch {
		case answer.Token != 0:
			lock, err := l.grant(ctx, nil, got, r)
			return lock, nil, err
		case r.Mode == dblock.ModePermit && !answer.MemberGone && answer.Stored != r.Limit:
			if made++; answer.Stored != 0 || made > tries { // one that was made has no permits: its row is bad
				return nil, nil, &dblock.LimitError{Key: r.Key, Stored: answer.Stored, Asked: r.Limit}
			}
			if err := l.makeSemaphore(ctx, r); err != nil {
				return nil, nil, err
			}
			continue
		case len(answer.Dead) > 0 && n < tries:
			l.reap(ctx, r, answer.Dead)
			continue
		case answer.Holder.Dead && n < tries:
			answer.Held = false
			if answer.Holder.Member != gone && l.evictions.evict(ctx, l, answer.Holder.Member) {
				gone = answer.Holder.Member
				continue
			}
		}
		refused, err := l.pauseOrRefuse(ctx, r, got.life, answer, n)
		if refused != nil || err != nil {
			return nil, refused, err
		}
	}
}

// makeSemaphore makes a request's semaphore if there is none.
func (l *Locker) makeSemaphore(ctx context.Context, r root.Request) error {
	bound, cancel := context.WithTimeout(ctx, l.bound())
	defer cancel()
	if err := l.Driver.Make(bound, []string{r.Key}, r.Limit); err != nil {
		return l.unanswered(ctx, sqlerr.Unwritten(err), r) // what is made has no holder
	}
	return nil
}

// SetPermits gives a semaphore another number of permits.
func (l *Locker) SetPermits(ctx context.Context, key string, limit int) error {
	if err := root.CheckText("key", key, 1, dblock.MaxLockKeyBytes); err != nil {
		return err
	}
	if err := root.CheckLimit(limit); err != nil {
		return err
	}
	err := l.change(ctx, l.bound(), fmt.Sprintf("the number of permits of %q", key), func(ctx context.Context) error {
		return l.Inspector.SetPermits(ctx, key, limit)
	})
	if err == nil {
		l.waits.ring(key)
	}
	return err
}

// change runs a statement that grants nothing: what it changes is named in errors.
func (l *Locker) change(ctx context.Context, bound time.Duration, what string, statement func(context.Context) error) error {
	if err := l.notClosed(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s was not changed: %w", what, context.Cause(ctx))
	}
	bounded, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	err := statement(bounded)
	if err == nil {
		return nil
	}
	return sqlerr.Wrap(l.Traits.Classify(err), err, "changing "+what, "no reply; it may be changed")
}
