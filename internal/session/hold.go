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

// holds counts the locks of a Locker until they are released.
type holds struct {
	*base
	unreleased int
	single     map[*hold]struct{} // those with a session of their own
	none       chan struct{}      // closed when none is left; made by Close
}

// hold is one lock that a caller has: of a slot, or of a session of its own.
type hold struct {
	slots   *slots
	session *session
	slot    *slot // nil: the session has no other lock
	id      ID
	key     string
	mode    dblock.Mode
	label   string
	began   time.Time
	signal  func(dblock.Reason) // marks the Lock as lost
	wake    chan struct{}       // where its caller waits, for the lock and for the answer to its release
	request request             // its release

	reported bool // signal was called, or Release; these are guarded by base.mu
	ended    bool // the session no longer has the lock
	unseen   bool // its caller had left when it was granted
	dropped  bool // Close no longer waits for it
}

// begin fills in a hold, which counts from now on; base.mu is held.
func (h *hold) begin(of *slots, s *session, r *root.Request, id ID, now time.Time) {
	h.slots, h.session, h.id, h.key, h.mode, h.label, h.began = of, s, id, r.Key, r.Mode, of.o.Label, now
	if r.Label != nil {
		h.label = *r.Label
	}
	of.unreleased++
}

// drop forgets a hold that no caller uses any more; h.mu is held.
func (hs *holds) drop(h *hold) {
	if h.dropped {
		return
	}
	h.dropped = true
	hs.unreleased--
	delete(hs.single, h)
	if hs.none != nil && hs.unreleased == 0 {
		closeOnce(hs.none)
	}
}

// close refuses further calls. The channel is closed when all locks are released.
func (hs *holds) close() (none chan struct{}) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.none == nil {
		hs.closed = true
		hs.none = make(chan struct{})
		if hs.unreleased == 0 {
			close(hs.none)
		}
	}
	return hs.none
}

// Fences returns nil: a server's own locks have no tokens.
func (h *hold) Fences() []dblock.Fence { return nil }

// ValidUntil is until when the server still has the connection, as far as this process can know.
func (h *hold) ValidUntil() time.Time { return h.session.trustedUntil() }

// Check ends the session of a hold whose time is up.
func (h *hold) Check() {
	if clock.Past(time.Now(), h.ValidUntil()) {
		h.session.lose(dblock.ReasonDisconnected)
	}
}

// ExpireIn is not supported.
func (h *hold) ExpireIn(context.Context, time.Duration) error {
	return fmt.Errorf("%w: %q is a session lock, which has no end of its own: leases have one (NewLeaseLocker)", dblock.ErrUnsupported, h.key)
}

// lose ends a lock that is lost, once.
func (h *hold) lose(why dblock.Reason) {
	h.slots.mu.Lock()
	reported := h.reported
	h.reported = true
	h.slots.mu.Unlock()
	if reported {
		return
	}
	h.signal(why)
	if lost := h.slots.o.Observer.Lost; lost != nil {
		lost(h.key, time.Since(h.began), why)
	}
}

// Release ends the hold. Unless the server confirms that it was held until now, the lock is lost.
func (h *hold) Release(context.Context, bool) error {
	mu := &h.slots.mu
	mu.Lock()
	ended, reported, unseen := h.ended, h.reported, h.unseen
	h.ended, h.reported = true, true
	held, why := false, dblock.ReasonDisconnected
	switch {
	case ended:
		mu.Unlock()
	case h.slot == nil:
		held = h.releaseSession()
	default:
		held = h.releaseSlot()
	}
	if !held && !ended && h.session.ctx.Err() == nil {
		why = dblock.ReasonUnconfirmed
	}
	if !held {
		h.signal(why)
	}
	o, lasted := &h.slots.o.Observer, time.Duration(0)
	if o.Released != nil || o.Lost != nil {
		lasted = time.Since(h.began)
	}
	mu.Lock()
	h.slots.drop(h)
	mu.Unlock()
	switch {
	case reported || unseen:
	case held && o.Released != nil:
		o.Released(h.key, lasted)
	case !held && o.Lost != nil:
		o.Lost(h.key, lasted, why)
	}
	return nil
}

// releaseSlot hands the lock to the next waiter of this process, or releases it. held reports
// whether the server has confirmed in time that the process had the lock until now. base.mu is
// held, and not held when it returns.
func (h *hold) releaseSlot() (held bool) {
	sl := h.slot
	sl.holders = slices.DeleteFunc(sl.holders, func(holder *hold) bool { return holder == h })
	r := &h.request
	r.Step, r.slot, r.release, r.wake = Step{sl.id, h.slots.releaseOp(sl)}, sl, true, h.wake
	if r.Op == prove {
		h.slots.next(sl)
	} else {
		sl.busy = true
	}
	_ = h.slots.send(context.Background(), r)
	held = r.settled.Load() && r.held
	if r.wake != nil {
		h.slots.wakers.Put(r.wake)
	}
	return held
}

// releaseSession ends a hold that has a session for itself, and the session with it. held is as of
// releaseSlot. The end of the connection takes a moment longer. base.mu is held, and not held when
// it returns.
func (h *hold) releaseSession() (held bool) {
	answer := make(chan bool, 1)
	h.session.single = nil
	h.slots.background(func() {
		r := request{Step: Step{h.id, freeOp(h.mode)}, session: h.session}
		done, err := h.session.steps([]Step{r.Step})
		answer <- r.confirms(err == nil && done[0], err)
		h.session.lose(dblock.ReasonClosed)
	})
	h.slots.mu.Unlock()
	timer := time.NewTimer(h.slots.o.longestRelease())
	defer timer.Stop()
	select {
	case held = <-answer:
	case <-timer.C:
	}
	return held
}
