package lease

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/root"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// AcquireAll waits until it has all of several keys at once; it never has a part of them, and so keeps nobody waiting.
func (l *Locker) AcquireAll(ctx context.Context, keys []string, opts ...dblock.Option) (*dblock.Lock, error) {
	r, err := root.NewSetRequest(keys, opts)
	if err != nil {
		return nil, err
	}
	return l.observed(ctx, r, l.waitForAll)
}

// TryAcquireAll never waits for a holder.
func (l *Locker) TryAcquireAll(ctx context.Context, keys []string, opts ...dblock.Option) (*dblock.Lock, error) {
	r, err := root.NewSetRequest(keys, opts)
	if err != nil {
		return nil, err
	}
	return l.observed(ctx, r, func(ctx context.Context, r root.Request) (*dblock.Lock, error) {
		lock, refused, err := l.askForAll(ctx, r)
		return lock, unless(lock, refused, err)
	})
}

// waitForAll stands in no line: it waits for one key that somebody has, and then asks for all again.
func (l *Locker) waitForAll(ctx context.Context, r root.Request) (*dblock.Lock, error) {
	began := l.o.Clock.Now()
	var told *bell
	defer func() { l.stopWaiting(told) }()
	for {
		lock, refused, err := l.askForAll(ctx, r)
		if sqlerr.IsContended(err) {
			refused, err = &dblock.HeldError{Key: r.Key}, nil
		}
		if lock != nil || err != nil {
			return lock, err
		}
		if !l.waits.known(told) || told.key != refused.Key {
			if b, err := l.waits.start(ctx, refused.Key); err == nil {
				l.stopWaiting(told)
				told = b
				continue // it may be free by now
			}
		}
		if err := l.pause(ctx, told, false, refused, l.o.Clock.Now().Sub(began)); err != nil {
			return nil, ended(refused, err)
		}
	}
}

// askForAll asks the database for all keys of a set: the lock, or who has one of them.
func (l *Locker) askForAll(ctx context.Context, r root.Request) (*dblock.Lock, *dblock.HeldError, error) {
	gone := make(map[string]member.ID) // of whoever had the key
	made := false                      // the rows that were missing
	for n := 1; ; n++ {
		sent, asks, answers, err := l.onceForAll(ctx, r, gone)
		if err != nil {
			return nil, nil, err
		}
		if answers[0].Token != 0 {
			lock, err := l.grantAll(ctx, r, sent, asks, answers)
			return lock, nil, err
		}
		if answers[0].MemberGone {
			sent.life.Suspect()
		}
		missing, again, refused, err := l.clearWay(ctx, asks, answers, gone)
		switch {
		case refused != nil || err != nil:
			return nil, refused, err
		case again:
		case !made && len(missing) > 0:
			made, err = true, l.makeFree(ctx, r, missing)
		case n >= tries:
			return nil, nil, l.lockedNow(ctx, r)
		default: // some were locked for a moment
			if err = l.sleep(ctx, time.Millisecond<<n); err != nil {
				err = l.unanswered(ctx, err, r)
			}
		}
		if err != nil {
			return nil, nil, err
		}
	}
}

// onceForAll sends one statement, as once does.
func (l *Locker) onceForAll(
	ctx context.Context, r root.Request, gone map[string]member.ID,
) (sent reply, asks []AcquireRequest, answers []AcquireResult, err error) {
	for n := 1; ; n++ {
		life, err := l.member.Life(ctx)
		if err != nil {
			if !l.again(ctx, err, n) {
				return reply{}, nil, nil, l.unjoined(ctx, err, r)
			}
			continue
		}
		sent = reply{ask: l.asked(r), life: life, sent: l.o.Clock.Now()}
		asks = make([]AcquireRequest, len(r.Keys))
		backs := make([]ReleaseRequest, len(r.Keys))
		for i, key := range r.Keys {
			asks[i] = sent.ask
			asks[i].Key, asks[i].Gone = key, gone[key]
			backs[i] = asks[i].back(dblock.ModeExclusive)
		}
		answers, err = l.acquireAll(ctx, life, asks)
		l.answered(life, err, err == nil && answers[0].Token != 0, backs...)
		if err == nil {
			return sent, asks, answers, nil
		}
		if !l.again(ctx, err, n) {
			return reply{}, nil, nil, l.unanswered(ctx, err, r)
		}
	}
}

func (l *Locker) acquireAll(ctx context.Context, life *member.Life, asks []AcquireRequest) ([]AcquireResult, error) {
	l.mu.Lock()
	closed := l.closed
	l.mu.Unlock()
	if closed {
		return nil, errNotSent()
	}
	if err := l.mayAsk(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, l.bound())
	defer cancel()
	answers, err := l.Driver.Acquire(ctx, AcquireBatch{KindSet, By{life.ID, life.Beat()}, asks})
	if err == nil {
		err = checkGrants(asks, answers)
	}
	return answers, err
}

// clearWay sees to what stands in the way of a set, so that it may be asked for again; else it returns who has one of the
// keys. The missing ones are those that nobody has: they have no row yet, or were locked for a moment.
func (l *Locker) clearWay(
	ctx context.Context, asks []AcquireRequest, answers []AcquireResult, gone map[string]member.ID,
) (missing []string, again bool, refused *dblock.HeldError, err error) {
	for i, a := range answers {
		key := asks[i].Key
		switch {
		case a.Shared: // also where a dead member held it that waited for the readers
			if refused, err := l.sendReadersOff(ctx, key); refused != nil || err != nil {
				return nil, false, refused, err
			}
			again = true
		case a.Holder.Dead && a.Holder.Member == gone[key]: // it is to be taken over with the others
		case a.Holder.Dead && l.evictions.evict(ctx, l, a.Holder.Member):
			gone[key], again = a.Holder.Member, true
		case a.Held:
			return nil, false, heldBy(key, a), nil
		default:
			missing = append(missing, key)
		}
	}
	return missing, again, nil, nil
}

// makeFree makes the rows of keys where they are missing: nobody has them.
func (l *Locker) makeFree(ctx context.Context, r root.Request, keys []string) error {
	bound, cancel := context.WithTimeout(ctx, l.bound())
	defer cancel()
	if err := l.Driver.Make(bound, keys, 0); err != nil {
		return l.unanswered(ctx, sqlerr.Unwritten(err), r)
	}
	return nil
}

// sendReadersOff makes a key one that readers don't have any more, where there are none: whoever acquires it sees to that.
func (l *Locker) sendReadersOff(ctx context.Context, key string) (refused *dblock.HeldError, err error) {
	lock, err := l.tryAlone(ctx, root.Request{Key: key})
	switch {
	case err == nil:
		_ = lock.Release(ctx) // if it was lost, there are no readers either
		return nil, nil
	case errors.As(err, &refused):
		return refused, nil
	}
	return nil, err
}

// grantAll makes the hold of a set.
func (l *Locker) grantAll(ctx context.Context, r root.Request, got reply, asks []AcquireRequest, answers []AcquireResult) (*dblock.Lock, error) {
	h := &hold{l: l, life: got.life, detached: got.ask.Detached, began: l.o.Clock.Now()}
	for i, a := range asks {
		h.fences = append(h.fences, dblock.Fence{Key: a.Key, Token: answers[i].Token, Handle: a.Handle})
	}
	return l.hold(ctx, nil, h, got, r)
}
