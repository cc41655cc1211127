package session

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dblock-go/dblock"
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
func (h *hold) begin(l *Locker, s *session, r *dblock.Request, id ID, now time.Time) {
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

// ExpireIn is not to be had.
func (h *hold) ExpireIn(context.Context, time.Duration) error {
	return fmt.Errorf("%w: %q is a session lock, which has no end of its own: leases have one (NewLease)", dblock.ErrUnsupported, h.key)
}

// lose tells whoever uses the lock that it is lost, once.
func (h *hold) lose(why dblock.Reason) {
	h.l.mu.Lock()
	told := h.told
	h.told = true
	h.l.mu.Unlock()
	if told {
		return
	}
	h.tell(why)
	if lost := h.l.o.Observer.Lost; lost != nil {
		lost(h.key, time.Since(h.began), why)
	}
}

// longestRelease is for how long a release waits for its answer. What takes longer goes on by itself.
const longestRelease = 5 * time.Second

// Release hands the lock over to the next one of this process, or gives it back.
func (h *hold) Release(ctx context.Context, lost bool) {
	var unseen bool
	if h.sl == nil {
		h.l.releaseAlone(ctx, h)
	} else {
		unseen = h.l.releaseShared(h)
	}
	released := h.l.o.Observer.Released
	if released == nil {
		return
	}
	if !lost && !unseen {
		released(h.key, time.Since(h.began))
	}
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	h.l.drop(h)
}

// ended is drop, unless the Observer is to hear of it first; l.mu is held.
func (l *Locker) ended(h *hold) {
	if l.o.Observer.Released == nil {
		l.drop(h)
	}
}

// releaseShared ends a hold of a slot. Who comes next in line is told, and the server where nobody does. It tells whether the
// caller has never heard of the hold.
func (l *Locker) releaseShared(h *hold) (unseen bool) {
	sl := h.sl
	l.mu.Lock()
	h.told = true
	unseen = h.unseen
	gone := h.gone
	h.gone = true
	if !gone {
		i := slices.Index(sl.users, h)
		sl.users = slices.Delete(sl.users, i, i+1)
	}
	if gone || len(sl.users) > 0 || len(sl.queue) > 0 || !sl.has || sl.busy {
		l.ended(h)
		if !gone {
			l.next(sl)
		}
		l.mu.Unlock()
		return unseen
	}
	sl.busy = true
	a := &h.ask
	a.Step, a.sl, a.h, a.wake = Step{sl.id, frees(sl.mode)}, sl, h, h.wake
	_ = l.send(context.Background(), a)
	if !a.settled.Load() {
		l.mu.Lock()
		l.ended(h)
		l.mu.Unlock()
	}
	if a.wake != nil {
		l.wakers.Put(a.wake)
	}
	return unseen
}
