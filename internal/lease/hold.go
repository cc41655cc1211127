package lease

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/root"
)

// holds are the locks that this process has, until they are released.
type holds struct {
	*requester
	locker dblock.Locker // of these holds

	mu        sync.Mutex
	all       map[*hold]struct{}
	closed    bool
	verifying clock.Timer   // the next check of all, or the one under way; nil: none
	empty     chan struct{} // closed when none is left; made by close
}

func newHolds(of dblock.Locker, q *requester) *holds {
	return &holds{requester: q, locker: of, all: make(map[*hold]struct{})}
}

// close refuses further holds. empty is closed when the last one was released.
func (s *holds) close() (all []*hold, empty <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.empty == nil {
		s.closed = true
		s.empty = make(chan struct{})
		if len(s.all) == 0 {
			close(s.empty)
		}
	}
	return slices.Collect(maps.Keys(s.all)), s.empty
}

// releaseAll releases what callers still hold. Another Locker of the process may keep the member
// alive.
func (s *holds) releaseAll() {
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.all))
	s.mu.Unlock()
	for _, h := range all {
		h.mu.Lock()
		released := h.why == dblock.ReasonReleased
		h.mu.Unlock()
		if !released {
			s.reconciler.add(h.inc, s.o.Fair, true, h.releases()...)
		}
	}
}

// hold is one lease that this process has, or a set of them.
type hold struct {
	l          *holds
	waiter     *waiter // its position in the queue; nil: it has none
	inc        *member.Incarnation
	fences     []dblock.Fence
	detached   bool
	began      time.Time
	notifyLost func(dblock.Reason) // the Lock, that it is lost
	unregister func()              // unregisters it from the end of the incarnation

	mu        sync.Mutex
	latestEnd time.Time // the database's end lies no later: WithMaxHold, or an ExpireIn without an answer; zero: none
	end       ownEnd
	timer     clock.Timer
	moving    chan struct{} // see moveSlot; nil until the first ExpireIn
	why       dblock.Reason // why it has ended, lost or released; empty: it has not
}

// grant makes the hold of a lease that was asked for at the given time. The database granted it, or
// the holder before has handed it over.
func (s *holds) grant(
	ctx context.Context, w *waiter, got reply, r root.Request,
) (*dblock.Lock, error) {
	a := got.request
	h := &hold{
		l: s, inc: got.inc, detached: a.Detached, began: s.o.Clock.Now(),
		fences: []dblock.Fence{{Key: a.Key, Token: got.Token, Handle: a.Handle, Mode: r.Mode}},
	}
	return s.hold(ctx, w, h, got, r)
}

// hold begins what was granted.
func (s *holds) hold(ctx context.Context, w *waiter, h *hold, got reply, r root.Request) (*dblock.Lock, error) {
	a, inc := got.request, got.inc
	var lock *dblock.Lock
	if a.Hold > 0 {
		h.end.until = got.sent.Add(a.Hold)
	}
	lock, h.notifyLost = root.NewLock(ctx, s.locker, r, h)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		_, _ = s.releaseNow(context.WithoutCancel(ctx), inc, h.releases()...)
		return nil, fmt.Errorf("%w: what was granted is given back", dblock.ErrClosed)
	}
	s.all[h] = struct{}{}
	s.reconciler.handles.hold(h.fences[0].Handle, true)
	s.verifySoon()
	if h.waiter = w; w != nil {
		s.queues.hold(w, h.began)
	}
	s.mu.Unlock()
	h.unregister = func() {}
	if !a.Detached {
		h.unregister = inc.OnEnd(h.lose)
	}
	if a.Hold > 0 {
		h.mu.Lock()
		h.latestEnd = got.sent.Add(a.Hold)
		h.endAt(h.latestEnd.Add(-s.margin(a.Hold)))
		h.mu.Unlock()
	}
	return lock, nil
}

func (h *hold) releases() []ReleaseRequest {
	var lasts time.Duration
	if h.detached {
		lasts = max(h.ValidUntil().Sub(h.l.o.Clock.Now()), 1)
	}
	backs := make([]ReleaseRequest, len(h.fences))
	for i, f := range h.fences {
		backs[i] = ReleaseRequest{Key: f.Key, Token: f.Token, Handle: f.Handle, Mode: f.Mode, Lasts: lasts}
	}
	return backs
}

// key names the hold.
func (h *hold) key() string { return h.fences[0].Key }

// Fences are what guards check.
func (h *hold) Fences() []dblock.Fence { return slices.Clone(h.fences) }

// ValidUntil is until when this process may trust the lease.
func (h *hold) ValidUntil() time.Time {
	h.mu.Lock()
	until := h.end.until
	h.mu.Unlock()
	if h.detached {
		return until
	}
	if trusted := h.inc.TrustedUntil(); until.IsZero() || trusted.Before(until) {
		return trusted
	}
	return until
}

// Check loses a hold whose time is up.
func (h *hold) Check() {
	if !h.detached {
		if why, over := h.inc.Ended(); over {
			h.lose(why)
			return
		}
	}
	h.mu.Lock()
	until := h.end.until
	h.mu.Unlock()
	if !until.IsZero() && clock.Past(h.l.o.Clock.Now(), until) {
		h.lose(dblock.ReasonTimeUp)
	}
}

// stop ends the hold for this process, once; false if it had ended before.
func (h *hold) stop(why dblock.Reason) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.why != "" {
		return false
	}
	h.why = why
	h.l.reconciler.handles.hold(h.fences[0].Handle, false)
	return true
}

// hasEnded reports whether the hold has ended, lost or released.
func (h *hold) hasEnded() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.why != ""
}

// lose ends a lock that is lost. The next waiters may ask at once.
func (h *hold) lose(why dblock.Reason) {
	if !h.stop(why) {
		return
	}
	h.notifyLost(why)
	if why != dblock.ReasonClosed {
		h.l.dequeue(h)
	}
	if why == dblock.ReasonTimeUp {
		h.forget()
	}
	h.observeLost(why)
}

// forget drops a lock whose time is up: it needs no Release, also if it was lost before.
func (h *hold) forget() {
	h.unregister()
	h.mu.Lock()
	unknown := h.end.unknown
	h.mu.Unlock()
	if unknown { // the server may not have the end
		h.l.reconciler.add(h.inc, h.l.o.Fair, true, h.releases()...)
	} else {
		h.l.reconciler.handles.remove(h.fences[0].Handle)
	}
	h.l.dequeue(h)
	h.l.drop(h)
}

func (h *hold) observeLost(why dblock.Reason) {
	if lost := h.l.o.Observer.Lost; lost != nil {
		lost(h.key(), h.held(), why)
	}
}

// held is for how long the lock has been held.
func (h *hold) held() time.Duration { return h.l.o.Clock.Now().Sub(h.began) }

// Release hands the lease over to the next one of this process, or releases it. If the server did
// not have it any more, it was lost. The error is that of a server that refuses.
func (h *hold) Release(ctx context.Context, _ bool) (refused error) {
	h.unregister()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), foreground)
	defer cancel()
	stood := h.stop(dblock.ReasonReleased)
	h.stopTimer()
	handed, certain := false, true
	if stood {
		handed, certain = h.l.handOff(ctx, h)
	}
	stolen := false
	if !handed { // the server may still have a lost lease
		var missing bool
		missing, refused = h.l.releaseNow(ctx, h.inc, h.releases()...)
		stolen = missing && stood && certain
		for _, f := range h.fences {
			h.l.waits.wake(f.Key)
		}
	}
	held := h.held()
	var why dblock.Reason
	if stolen {
		why = h.lossReason(h.EndsAt())
		h.notifyLost(why)
	}
	h.l.dequeue(h)
	h.l.drop(h)
	released := h.l.o.Observer.Released
	switch {
	case stolen:
		h.observeLost(why)
	case stood && released != nil:
		released(h.key(), held)
	}
	return refused
}

// dequeue ends the hold's position in the queue.
func (s *holds) dequeue(h *hold) {
	if h.waiter != nil {
		s.queues.remove(h.waiter)
	}
}

// drop forgets a hold that no caller uses any more.
func (s *holds) drop(h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, h)
	if s.empty != nil && len(s.all) == 0 {
		select {
		case <-s.empty:
		default:
			close(s.empty)
		}
	}
}
