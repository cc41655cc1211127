package lease

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/ctxerr"
	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/internal/root"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// wait waits until the key is granted.
func (l *Locker) wait(ctx context.Context, r root.Request) (*dblock.Lock, error) {
	var late lateRequests
	wait := l.waitInQueue
	if l.o.Fair {
		wait = l.fair.wait
	}
	lock, err := wait(ctx, r, &late)
	return lock, l.exclusive.ended(ctx, r, late, err)
}

// waitInQueue queues for the key, and asks for it when it is active, until it is granted.
func (l *Locker) waitInQueue(ctx context.Context, r root.Request, late *lateRequests) (*dblock.Lock, error) {
	if r.Mode != dblock.ModeExclusive {
		lock, _, err := l.sharing.atOnce(ctx, r)
		if lock != nil || err != nil && !errors.Is(err, dblock.ErrNotAcquired) && !sqlerr.IsContended(err) && !late.add(ctx, err) {
			return lock, err
		}
	}
	w, err := l.queues.enqueue(r, true)
	if err != nil {
		return nil, err
	}
	x := l.exclusive
	defer x.leave(w)
	if err := l.queues.await(ctx, w); err != nil {
		return nil, err
	}
	if g := w.given; g != nil {
		return x.grant(ctx, w, g.reply, r)
	}
	if l.queues.yields(w) {
		if err := x.yield(ctx); err != nil {
			return nil, waitEnded(l.queues.lastSeen(r), err)
		}
	}
	lock, err := l.poll(ctx, w, r, late)
	if errors.Is(err, dblock.ErrNotAcquired) && l.queues.wasOffered(w) {
		err = errHandedOver(ctx, w)
	}
	return lock, err
}

// leave ends the position of a call in its queue, unless a hold has taken it. A lease that was
// granted too late is released, and the next waiter asks after that.
func (x *exclusive) leave(w *waiter) {
	x.admitReaders(w)
	late := x.queues.leave(w)
	if late == nil {
		return
	}
	begun := x.background(func() {
		_, _ = x.releaseNow(x.ending, late.inc, late.undo())
		x.waits.wake(w.request.Key)
		x.queues.remove(w)
	})
	if !begun { // the Locker is closed
		x.releaseUnresolved(late.inc, late.undo())
		x.queues.remove(w)
	}
}

// poll asks for the key until it is granted, as often as it is worth it.
func (l *Locker) poll(ctx context.Context, w *waiter, r root.Request, late *lateRequests) (*dblock.Lock, error) {
	began := l.o.Clock.Now()
	var sub *subscription
	defer func() { l.stopWaiting(sub) }()
	for {
		lock, refused, err := l.request(ctx, w, r)
		if sqlerr.IsContended(err) || late.add(ctx, err) {
			refused, err = l.queues.lastSeen(r), nil
		}
		if lock != nil || err != nil {
			return lock, err
		}
		if !l.waits.known(sub) {
			if b, err := l.waits.start(ctx, r.Key); err == nil {
				l.stopWaiting(sub)
				sub = b
				continue // from now on a release notifies this call; but the key may be free already
			}
		}
		seen := r.Mode == dblock.ModeExclusive && w.pending == nil // when it is free; nothing shows that readers have gone, or permits come back
		if err := l.exclusive.pause(ctx, sub, seen, refused, l.o.Clock.Now().Sub(began)); err != nil {
			return nil, waitEnded(refused, err)
		}
	}
}

// request asks for what a waiter wants.
func (l *Locker) request(ctx context.Context, w *waiter, r root.Request) (*dblock.Lock, *dblock.HeldError, error) {
	if r.Mode == dblock.ModeExclusive {
		return l.exclusive.request(ctx, w, r)
	}
	lock, refused, err := l.sharing.requestShared(ctx, r)
	if lock != nil && r.Mode == dblock.ModeShared {
		l.queues.activateReaders(w)
	}
	return lock, refused, err
}

func (b *base) stopWaiting(of *subscription) {
	if of != nil {
		b.waits.stop(of)
	}
}

// pauser says until when a call waits.
type pauser struct{ *base }

// pause waits until it is worth asking again: the call is woken, the holder's time is up, or the
// poll is due. The poll has jitter, so that processes don't ask at the same time. Without
// notifications only the poll counts.
func (p *pauser) pause(ctx context.Context, b *subscription, seen bool, refused *dblock.HeldError, waited time.Duration) error {
	every := p.o.Poll
	var woken chan struct{}
	if b != nil {
		woken = b.woken
	}
	notified := b != nil && (p.waits.isNotified() || seen && p.waits.isNotifiedOf(b.key))
	switch {
	case !notified:
		every = pace.Interval(waited, p.o.UnnotifiedPoll)
	case p.waits.isNotified():
		every = p.notifiedPoll(p.o.Clock.Now().Sub(b.began))
	}
	d := jitter(p.o.Clock, every)
	if refused.Remaining > 0 {
		d = min(d, refused.Remaining+time.Millisecond)
	}
	if err := p.sleepUntil(ctx, d, woken); err != nil || notified {
		return err
	}
	now := p.o.Clock.Now() // planned when it is due: one that is due late must not hold up those that are due soon
	return p.sleepUntil(ctx, p.waits.pace.Plan(now, now).Sub(now), woken)
}

// jitter returns d give or take a half, so that processes do not ask in step.
func jitter(c clock.Clock, d time.Duration) time.Duration { return d/2 + clock.Draw(c, d+1) }

// notifiedPoll is how often a call asks again that is notified of releases, and has waited so long.
// A release that is under way when a wait begins does not see the waiter, and notifies no one. It
// may commit after the waiter has asked. So the first polls are soon, and each comes after twice
// the time: such a release costs little more than it takes itself.
func (p *pauser) notifiedPoll(waited time.Duration) time.Duration {
	return min(max(waited, notifiedWithin), p.o.Poll)
}

// yield lets another process have a key that this one has released for it. Without notifications it
// waits for the longest time that a poll takes.
func (p *pauser) yield(ctx context.Context) error {
	if p.waits.isNotified() || p.waits.watches() {
		return p.sleep(ctx, notifiedWithin)
	}
	return p.sleep(ctx, p.o.UnnotifiedPoll*3/2)
}

// notifiedWithin is ample time for another process to be notified of a release and to ask for the
// key.
const notifiedWithin = 20 * time.Millisecond

// sleep waits while ctx lives.
func (p *pauser) sleep(ctx context.Context, d time.Duration) error { return p.sleepUntil(ctx, d, nil) }

// A pause shorter than brief only lets others finish. It does not use the clock: if a test stops
// the clock, such a pause would make a call hang for a reason that its caller can't see.
const brief = 100 * time.Millisecond

// sleepUntil is sleep that ends early on woken.
func (p *pauser) sleepUntil(ctx context.Context, d time.Duration, woken <-chan struct{}) error {
	_, err := p.sleepOr(ctx, d, woken)
	return err
}

// sleepOr is sleepUntil, and reports whether it was woken.
func (p *pauser) sleepOr(ctx context.Context, d time.Duration, woken <-chan struct{}) (bool, error) {
	c := p.o.Clock
	if d < brief {
		c = clock.Real{}
	}
	due := make(chan struct{})
	timer := c.AfterFunc(d, func() { close(due) })
	defer timer.Stop()
	select {
	case <-due:
		return false, nil
	case <-woken:
		return true, nil
	case <-ctx.Done():
		return false, ctxerr.Of(ctx)
	case <-p.ending.Done():
		return false, context.Cause(p.ending)
	}
}
