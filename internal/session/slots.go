package session

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/ctxerr"
	"github.com/dblock-go/dblock/internal/root"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// slots are the locks that this process holds or wants.
type slots struct {
	*sessions
	*holds
	*base
	all map[ID]*slot
}

// slot is one lock of the server that this process holds or wants. The server knows the session,
// not its callers, so the slot keeps the callers apart. It is guarded by base.mu.
type slot struct {
	id      ID
	key     string   // of its first caller
	session *session // that has the lock, or asks for it
	has     bool     // the session has the lock
	mode    dblock.Mode
	holders []*hold   // one, or several in shared mode
	queue   []*waiter // in the order of their arrival; the first one asks for the lock
	busy    bool      // a request is under way

	shows, intends bool // what is announced to other sessions

	noted      time.Time // when its key was noted
	acquiredAt time.Time
	shareBegan time.Time // at acquiredAt, or when the last look found no other session waiting.
	handOffs   int       // how many more waiters of this process have the lock before other sessions.
	yields     bool      // other sessions wait, and this process has had its turn.
	proven     bool      // the server has just confirmed that the session has the lock: it may be handed over or shared.
	yielded    bool      // it was released for another session: the next waiter lets that one ask first.

	firstHolder [1]*hold // storage for the usual case of one
	firstWaiter [1]*waiter
}

// waiter is one call that wants a slot's lock.
type waiter struct {
	ctx     context.Context
	r       *root.Request
	slot    *slot
	wake    chan struct{} // where its caller waits; nil: it has not yet
	request request       // its first

	notified bool         // its state has changed: look again; these are guarded by base.mu
	lock     *dblock.Lock // that it was granted
	hold     hold         // of that
	left     bool         // its caller has
	refused  bool         // it has asked, and another session has the lock
}

// notify has a call look again; base.mu is held.
func (w *waiter) notify() {
	w.notified = true
	wake(w.wake)
}

// newRequest makes the next request of a call. Its last one is not under way, unless its caller has
// left.
func (w *waiter) newRequest(op Op) *request {
	r := &w.request
	if r.slot != nil {
		r = new(request)
	}
	r.Step, r.slot, r.waiter, r.wake = Step{w.slot.id, op}, w.slot, w, w.wake
	return r
}

// maxShare is how long a process hands a lock over among its own callers while other sessions
// wait. It hands it over once to each caller that waits when its turn begins. So the callers of all
// processes wait for about as long.
const maxShare = time.Second

// enqueue adds a waiter to the queue of a slot. A call that does not wait is refused if another
// caller of this process is before it. sl.mu is held.
func (sl *slots) enqueue(ctx context.Context, r *root.Request, id ID, wait bool) (*waiter, error) {
	if sl.closed {
		return nil, errClosed()
	}
	of := sl.all[id]
	if of == nil {
		of = &slot{id: id, key: r.Key}
		of.holders, of.queue = of.firstHolder[:0], of.firstWaiter[:0]
		sl.all[id] = of
	}
	if !wait && !of.isOpen(r.Mode) {
		return nil, of.heldError(r.Key)
	}
	w := &waiter{ctx: ctx, r: r, slot: of}
	of.queue = append(of.queue, w)
	sl.next(of)
	return w, nil
}

// isOpen reports whether a call may have the lock, as far as this process knows. A lock that is
// being released has no holder.
func (of *slot) isOpen(mode dblock.Mode) bool {
	return len(of.queue) == 0 && (len(of.holders) == 0 || of.mode == dblock.ModeShared && mode == dblock.ModeShared)
}

// heldError names the holder of the lock, as far as it is known.
func (of *slot) heldError(key string) *dblock.HeldError {
	h := &dblock.HeldError{Key: key}
	if len(of.holders) > 0 {
		h.Holder.Label = cmp.Or(of.holders[0].label, "another caller of this process")
		return h
	}
	if len(of.queue) == 0 || of.queue[0].refused {
		h.Holder.Label = "another session"
	}
	return h
}

// next does what a slot's state allows. It grants the lock to the next waiters if this process has
// it; else it wakes the first waiter to ask for it. A lock that no caller wants is released. sl.mu
// is held.
func (sl *slots) next(of *slot) {
	for !of.busy && len(of.queue) > 0 && !sl.closed {
		w := of.queue[0]
		switch {
		case len(of.holders) > 0 && !of.shares(w):
			return
		case of.fits(w) && of.proven:
			of.handOffs--
			sl.grant(w, time.Now())
			w.notify()
		case of.fits(w), len(of.holders) > 0 && !w.refused: // it first asks whether this process still has the lock
			w.notify()
			return
		case len(of.holders) > 0:
			return
		case of.has:
			sl.post(of, freeOp(of.mode))
		case w.refused: // it asks again when it is notified, or when its poll interval ends
			return
		default:
			w.notify()
			return
		}
	}
	switch {
	case of.busy || len(of.holders) > 0 || len(of.queue) > 0 && !(sl.closed && of.has):
	case of.has:
		sl.post(of, freeOp(of.mode))
	case of.shows:
		sl.post(of, Hide)
	case of.intends:
		sl.post(of, Forgo)
	default:
		of.detach()
		if sl.all[of.id] == of {
			delete(sl.all, of.id)
		}
	}
}

// fits reports whether the lock that this process has would do for a call.
func (of *slot) fits(w *waiter) bool { return of.has && of.mode == w.r.Mode && !of.yields }

// shares reports whether a call could have the lock beside its holders.
func (of *slot) shares(w *waiter) bool {
	return of.mode == dblock.ModeShared && w.r.Mode == dblock.ModeShared
}

// mayRequest reports whether the first waiter has something to ask the server: for the lock, if
// this process does not have it; else whether other sessions wait for it.
func (of *slot) mayRequest(w *waiter) bool {
	if of.has && len(of.holders) > 0 {
		return of.shares(w)
	}
	return !of.has || of.fits(w)
}

// retryAll has the waiters ask again, whatever the last answer was.
func (of *slot) retryAll() {
	for _, w := range of.queue {
		w.refused = false
	}
}

// isShareUsed reports whether this process has had a lock for so long that other sessions are next.
func (of *slot) isShareUsed(now time.Time) bool {
	return of.handOffs <= 0 || now.Sub(of.shareBegan) >= maxShare
}

// beginShare has each caller that waits now have the lock once.
func (of *slot) beginShare(now time.Time) {
	of.shareBegan, of.handOffs, of.yields = now, max(len(of.queue), 1), false
}

// takeOp acquires a lock in a mode.
func takeOp(m dblock.Mode) Op {
	if m == dblock.ModeShared {
		return TakeShared
	}
	return Take
}

// freeOp releases a lock of a mode.
func freeOp(m dblock.Mode) Op {
	if m == dblock.ModeShared {
		return FreeShared
	}
	return Free
}

// waitersOp asks whether this process should release what it has. An exclusive lock yields to all
// that wait; a shared one to those that want it exclusively. In the server's own queue, all
// sessions that wait come before later ones.
func (sl *slots) waitersOp(m dblock.Mode) Op {
	if m == dblock.ModeShared && !sl.o.ServerQueue {
		return HasExclusiveWaiters
	}
	return HasWaiters
}

// releaseOp is what the release of a hold asks of the server: to release the lock if no waiter of
// this process is next, and in any case to prove that the process has had it until now. sl.mu is
// held.
func (sl *slots) releaseOp(of *slot) Op {
	switch {
	case of.busy || len(of.holders) > 0:
		return prove
	case len(of.queue) > 0 && of.fits(of.queue[0]) && !sl.closed:
		return sl.waitersOp(of.mode)
	default:
		return freeOp(of.mode)
	}
}

// grant makes the first waiter of a queue a holder; sl.mu is held.
func (sl *slots) grant(w *waiter, now time.Time) {
	of := w.slot
	of.queue = slices.Delete(of.queue, 0, 1)
	h := &w.hold
	h.begin(sl, of.session, w.r, of.id, now)
	h.slot, h.wake = of, w.wake
	w.lock, h.signal = root.NewLock(w.ctx, sl.self, *w.r, h)
	of.holders = append(of.holders, h)
}

// dequeue removes a waiter whose call ends, and releases what it may have been granted meanwhile.
func (sl *slots) dequeue(w *waiter) {
	sl.mu.Lock()
	defer sl.mu.Unlock()
	w.left = true
	if i := slices.Index(w.slot.queue, w); i >= 0 {
		w.slot.queue = slices.Delete(w.slot.queue, i, i+1)
	}
	if lock := w.lock; lock != nil {
		w.hold.unseen = true
		sl.background(func() { _ = lock.Release(context.Background()) })
	} else {
		sl.next(w.slot)
	}
}

// sessionOf returns the session of a slot. A slot without one gets a session below its limit, or a
// new one. sl.mu is held, except while one is opened.
func (sl *slots) sessionOf(ctx context.Context, of *slot) (*session, error) {
	for {
		if of.session != nil {
			return of.session, nil
		}
		if sl.ending.Err() != nil {
			return nil, errClosed()
		}
		s, o := sl.available()
		if s != nil {
			of.attach(s)
			return s, nil
		}
		if o == nil {
			return nil, sl.errFull(of.key)
		}
		sl.mu.Unlock()
		var err error
		select {
		case <-o.done:
			err = o.err
		case <-ctx.Done():
			err = sqlerr.Unwritten(ctxerr.Of(ctx))
		}
		sl.mu.Lock()
		if err != nil {
			return nil, err
		}
	}
}

// errFull says that this process has, or waits for, as many session locks as it may; sl.mu is held.
func (sl *slots) errFull(key string) error {
	return fmt.Errorf("%w: lock %q: this process has or waits for %d session locks already, on %d connections of at most %d locks each: "+
		"release some, allow more connections (SessionOptions.MaxConns), or use leases (NewLeaseLocker), of which there may be any number",
		dblock.ErrOverloaded, key, len(sl.all)-1, sl.conns, sl.driver.MaxLocks())
}

// attach puts a slot on a session; base.mu is held.
func (of *slot) attach(s *session) {
	of.session = s
	s.slots++
}

// detach ends that; base.mu is held.
func (of *slot) detach() {
	if of.session != nil {
		of.session.slots--
		of.session = nil
	}
}
