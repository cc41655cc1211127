package session

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/root"
)

// hold is one lock that a caller has: of a slot, or of a session of its own.
type hold struct {
	l     *Locker
	s     *session
	sl    *slot // nil: the session has no other lock
	id    ID
	key   string
	mode  dblock.Mode
	label string
	began time.Time
	tell  func(dblock.Reason) // the Lock, that it is lost
	wake  chan struct{}       // where its caller has waited, and will for the answer to its release
	ask   ask                 // that

	told    bool // it was; these are guarded by Locker.mu
	gone    bool // the session has it no more
	unseen  bool // its caller had gone when it was granted
	dropped bool // Close need not wait for it any more
}

// begin fills in a hold, which counts from now on; l.mu is held.
func (h *hold) begin(l *Locker, s *session, r *root.Request, id ID, now time.Time) {
	h.l, h.s, h.id, h.key, h.mode, h.label, h.began = l, s, id, r.Key, r.Mode, l.o.Label, now
	if r.Label != nil {
		h.label = *r.Label
	}
	l.holds++
}

// Fences are none: a server's own locks have no tokens.
func (h *hold) Fences() []dblock.Fence { return nil }

// ValidUntil is until when this process may believe that the server still knows the connection.
func (h *hold) ValidUntil() time.Time { return h.s.trustedUntil() }

// Check ends the session of a hold whose time is up.
func (h *hold) Check() {
	if clock.Past(time.Now(), h.ValidUntil()) {
		h.s.lose(dblock.ReasonDisconnected)
	}
}

// ExpireIn is not to be had.
func (h *hold) ExpireIn(context.Context, time.Duration) error {
	return fmt.Errorf("%w: %q is a session lock, which has no end of its own: leases have one (NewLeaseLocker)", dblock.ErrUnsupported, h.key)
}

// lose ends a lock that is lost, once. tell calls the Observer, which may block: a caller with more to end does that first.
func (h *hold) lose(why dblock.Reason) (tell func()) {
	h.l.mu.Lock()
	told := h.told
	h.told = true
	h.l.mu.Unlock()
	if told {
		return func() {}
	}
	h.tell(why)
	lost, held := h.l.o.Observer.Lost, time.Since(h.began)
	return func() {
		if lost != nil {
			lost(h.key, held, why)
		}
	}
}

// longestRelease bounds the wait of a release for its answer. A release that takes longer goes on in the background.
const longestRelease = time.Second

// Release ends the hold. Unless the server confirms that it was held until now, the lock is lost.
func (h *hold) Release(context.Context, bool) error {
	l := h.l
	l.mu.Lock()
	gone, told, unseen := h.gone, h.told, h.unseen
	h.gone, h.told = true, true
	held, why := false, dblock.ReasonDisconnected
	switch {
	case gone:
		l.mu.Unlock()
	case h.sl == nil:
		held = l.releaseAlone(h)
	default:
		held = l.releaseShared(h)
	}
	if !held && !gone && h.s.ctx.Err() == nil {
		why = dblock.ReasonUnconfirmed
	}
	if !held {
		h.tell(why)
	}
	o, lasted := &l.o.Observer, time.Duration(0)
	if o.Released != nil || o.Lost != nil {
		lasted = time.Since(h.began)
	}
	l.mu.Lock()
	l.drop(h)
	l.mu.Unlock()
	switch {
	case told || unseen:
	case held && o.Released != nil:
		o.Released(h.key, lasted)
	case !held && o.Lost != nil:
		o.Lost(h.key, lasted, why)
	}
	return nil
}

// releaseShared ends a hold of a slot: the next waiter of this process gets the lock, or the server does. held tells whether
// the server has confirmed in time that the process had it until now. l.mu is held, and no more when it returns.
func (l *Locker) releaseShared(h *hold) (held bool) {
	sl := h.sl
	sl.users = slices.DeleteFunc(sl.users, func(user *hold) bool { return user == h })
	a := &h.ask
	a.Step, a.sl, a.h, a.wake = Step{sl.id, l.leaves(sl)}, sl, h, h.wake
	if a.Op == prove {
		l.next(sl)
	} else {
		sl.busy = true
	}
	_ = l.send(context.Background(), a)
	held = a.settled.Load() && a.held
	if a.wake != nil {
		l.wakers.Put(a.wake)
	}
	return held
}
