package session

import (
	"context"
	"fmt"
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

	told   bool // it was; these are guarded by Locker.mu
	gone   bool // the session has it no more
	unseen bool // its caller had gone when it was granted
}

func newHold(l *Locker, s *session, sl *slot, r dblock.Request) *hold {
	h := &hold{l: l, s: s, sl: sl, key: r.Key, mode: r.Mode, label: l.o.Label, began: time.Now()}
	if sl != nil {
		h.id = sl.id
	}
	if r.Label != nil {
		h.label = *r.Label
	}
	return h
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
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), longestRelease)
	defer cancel()
	if h.sl == nil {
		h.l.releaseAlone(ctx, h)
	} else {
		h.l.releaseShared(ctx, h)
	}
	h.l.mu.Lock()
	unseen := h.unseen
	h.l.mu.Unlock()
	if released := h.l.o.Observer.Released; released != nil && !lost && !unseen {
		released(h.key, time.Since(h.began))
	}
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	h.l.drop(h)
}

// releaseShared ends a hold of a slot. Who comes next in line is told, and the server where nobody does.
func (l *Locker) releaseShared(ctx context.Context, h *hold) {
	sl := h.sl
	l.mu.Lock()
	h.told = true
	if h.gone {
		l.mu.Unlock()
		return
	}
	h.gone = true
	delete(sl.users, h)
	last := len(sl.users) == 0 && len(sl.queue) == 0 && sl.has && !sl.busy
	if last {
		sl.busy = true
	} else {
		l.next(sl)
	}
	l.mu.Unlock()
	if last {
		l.free(ctx, sl)
	}
}
