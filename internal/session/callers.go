package session

import (
	"context"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/ctxerr"
	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/internal/root"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// callers wait for slots.
type callers struct {
	*slots
	watcher *watcher
	pace    pace.Pace
}

// tries is how often a call asks again whose connection ended, or whose request the server failed.
const tries = 4

// try asks once.
func (c *callers) try(ctx context.Context, r *root.Request, id ID) (*dblock.Lock, error) {
	c.mu.Lock()
	w, err := c.enqueue(ctx, r, id, false)
	if err != nil {
		c.mu.Unlock()
		return nil, err
	}
	return c.acquire(ctx, w, func() error { return c.refusal(w, nil) })
}

// wait asks until it has the lock: whenever it is notified, and after each poll interval.
func (c *callers) wait(ctx context.Context, r *root.Request, id ID) (*dblock.Lock, error) {
	if ctx.Err() != nil {
		return nil, &dblock.HeldError{Key: r.Key, Wait: sqlerr.NotSent(ctx)}
	}
	c.mu.Lock()
	w, err := c.enqueue(ctx, r, id, true)
	if err != nil {
		c.mu.Unlock()
		return nil, err
	}
	var began time.Time
	return c.acquire(ctx, w, func() error {
		if began.IsZero() {
			began = time.Now()
		}
		if shown, err := c.show(ctx, w); shown || err != nil {
			return err
		}
		c.watcher.wake()
		return c.pause(ctx, w, c.untilNext(time.Since(began)))
	})
}

// acquire asks until w has the lock. refused is called if another session has it; an error of
// refused ends the call. c.mu is held, and not held when it returns.
func (c *callers) acquire(ctx context.Context, w *waiter, refused func() error) (*dblock.Lock, error) {
	for failed := 0; ; c.mu.Lock() {
		lock, isHeld, err := c.advance(ctx, w)
		if lock != nil {
			return lock, nil
		}
		if err == nil && isHeld {
			if err = refused(); err == nil {
				failed = 0 // in a long wait, a connection may be lost any number of times
			}
		}
		if err != nil && failed < tries && ctx.Err() == nil && c.isRetryable(err) {
			failed++
			err = c.pause(ctx, w, time.Millisecond<<(2*failed))
		}
		if err != nil {
			c.dequeue(w)
			return nil, c.explain(ctx, w, err)
		}
	}
}

// advance makes w's next request, or waits until w is notified. isHeld reports that another session
// has the lock. c.mu is held, and not held when it returns.
func (c *callers) advance(ctx context.Context, w *waiter) (lock *dblock.Lock, isHeld bool, err error) {
	sl := w.slot
	var op Op
	switch {
	case w.lock != nil:
		defer c.mu.Unlock()
		return w.lock, false, nil
	case c.closed:
		c.mu.Unlock()
		return nil, false, errClosed()
	case sl.busy || sl.queue[0] != w || !sl.mayRequest(w):
		c.mu.Unlock()
		return nil, false, c.await(ctx, w, nil)
	case sl.has:
		op = c.waitersOp(w.r.Mode)
	default:
		op = takeOp(w.r.Mode)
	}
	yielded := sl.yielded
	sl.busy, sl.yielded, w.refused, w.notified = true, false, false, false
	if yielded { // the slot is busy, so that no other caller of this process asks meanwhile
		c.mu.Unlock()
		err := c.yield(ctx)
		c.mu.Lock()
		if err != nil {
			c.settle(&request{Step: Step{sl.id, HasWaiters}, slot: sl}, false, err, time.Now())
			c.mu.Unlock()
			return nil, false, err
		}
	}
	r := w.newRequest(op)
	err = c.send(ctx, r)
	if r.settled.Load() && r.granted {
		return w.lock, false, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return nil, w.lock == nil && (r.takes() && w.refused || !r.takes() && sl.yields), err
}

// show announces to other sessions that this process waits. It returns again if the caller has to
// ask again before it waits: if the announcement is new, the lock may have been released meanwhile,
// and if it failed, no notification will come.
func (c *callers) show(ctx context.Context, w *waiter) (again bool, err error) {
	shown, asked, err := c.announce(ctx, w, Show)
	if err == nil && asked && !shown && c.o.Notifies { // another session was just looking for waiters, and has found none
		return true, nil
	}
	if err == nil && c.o.Shared && w.r.Mode == dblock.ModeExclusive {
		var intends bool
		intends, err = c.intend(ctx, w)
		shown = shown || intends
	}
	return shown, err
}

// intendTries is how often a call tries to announce that it wants exclusive mode. It fails in the
// moment in which a reader looks, and readers may look often. An announcement of another session
// does as well.
const intendTries = 5

func (c *callers) intend(ctx context.Context, w *waiter) (intends bool, err error) {
	for n := range intendTries {
		var asked bool
		intends, asked, err = c.announce(ctx, w, Intend)
		if intends || !asked || err != nil {
			break
		}
		if err = c.sleep(ctx, c.o.Draw(time.Millisecond<<n)); err != nil {
			break
		}
	}
	return intends, err
}

// announce sends Show or Intend if w is first in its queue and it was not done yet.
func (c *callers) announce(ctx context.Context, w *waiter, op Op) (done, asked bool, err error) {
	c.mu.Lock()
	sl := w.slot
	is := &sl.shows
	if op == Intend {
		is = &sl.intends
	}
	isFirst := !sl.busy && !sl.has && len(sl.queue) > 0 && sl.queue[0] == w
	if *is || !isFirst {
		c.mu.Unlock()
		return false, false, nil
	}
	sl.busy, w.notified = true, false
	err = c.send(ctx, w.newRequest(op))
	c.mu.Lock()
	defer c.mu.Unlock()
	return *is, true, err
}

// pause waits until w is notified, for d at most.
func (c *callers) pause(ctx context.Context, w *waiter, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	return c.await(ctx, w, timer.C)
}

// await waits until w is notified or the time is due, while ctx lives.
func (c *callers) await(ctx context.Context, w *waiter, due <-chan time.Time) error {
	for {
		c.mu.Lock()
		notified := w.notified
		w.notified = false
		if w.wake == nil {
			w.wake = c.waker()
		}
		c.mu.Unlock()
		if notified {
			return nil
		}
		select {
		case <-w.wake:
		case <-due:
			return nil
		case <-ctx.Done():
			return ctxerr.Of(ctx)
		case <-c.ending.Done():
			return context.Cause(c.ending)
		}
	}
}

// isNotified reports whether the server, or the watcher, notifies of releases. Then calls poll
// seldom.
func (c *callers) isNotified() bool { return c.o.Notifies || c.watcher.active.Load() }

// untilNext is the time until a call asks again that has waited for so long.
func (c *callers) untilNext(waited time.Duration) time.Duration {
	every := c.o.Poll
	notified := c.isNotified()
	if !notified {
		every = pace.Interval(waited, c.o.Poll)
	}
	now := time.Now()
	due := now.Add(every/2 + c.o.Draw(every+1)) // at random, so that processes don't ask at the same time
	if notified {
		return due.Sub(now)
	}
	return c.pace.Plan(now, due).Sub(now)
}

// notifiedWithin is ample time for another process to be notified of a release and to ask for the
// lock.
const notifiedWithin = 20 * time.Millisecond

// yield lets another session have a lock that this process has released for it.
func (c *callers) yield(ctx context.Context) error {
	d := notifiedWithin
	if !c.isNotified() { // then the others poll, too, as far as this process can know
		d = c.o.Poll * 3 / 2
	}
	return c.sleep(ctx, d)
}

// sleep waits, whatever waiters are notified of meanwhile.
func (c *callers) sleep(ctx context.Context, d time.Duration) error {
	return c.pause(ctx, &waiter{}, d)
}
