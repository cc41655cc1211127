package session

import (
	"time"

	"github.com/dblock-go/dblock"
)

// settle records the result of a request, once; sl.mu is held. If its session has ended in the
// meantime, the step was not done.
func (sl *slots) settle(r *request, done bool, err error, now time.Time) {
	if r.settled.Load() {
		return
	}
	if done && r.slot.session != r.session {
		done, err = false, errEnded
	}
	r.err = err
	r.held = r.confirms(done, err)
	if r.Op != prove {
		sl.apply(r, done, err, now)
	}
	r.settled.Store(true)
}

// apply changes a slot's state by the result of a request; sl.mu is held.
func (sl *slots) apply(r *request, done bool, err error, now time.Time) {
	of := r.slot
	of.busy = false
	switch r.Op {
	case Take, TakeShared:
		r.waiter.refused = err == nil && !done
		if done {
			sl.taken(r, now)
		}
	case Free, FreeShared:
		if r.forgoes {
			of.intends = false
		}
		of.retryAll()
		of.yielded = of.yields && of.has
		of.has, of.yields = false, false
	case Show:
		of.shows = done
	case Hide:
		of.shows = false
	case Intend:
		of.intends = done
	case Forgo:
		of.intends = false
	case HasWaiters, HasExclusiveWaiters:
		if r.hides && err == nil {
			of.shows = false
		}
		if err == nil && of.has {
			sl.looked(of, done, now)
		}
		if r.waiter != nil {
			r.waiter.refused = of.yields
		}
	}
	sl.next(of)
	of.proven = false
}

// looked records that this process still has the lock, and whether other sessions wait for it;
// sl.mu is held.
func (sl *slots) looked(of *slot, others bool, now time.Time) {
	if !others {
		of.beginShare(now)
	}
	of.yields = others && (sl.o.ServerQueue || of.isShareUsed(now))
	of.proven = true
}

// taken records that this process has the lock, and grants it to the waiter that asked for it;
// sl.mu is held.
func (sl *slots) taken(r *request, now time.Time) {
	of := r.slot
	of.has, of.mode, of.acquiredAt = true, r.waiter.r.Mode, now
	of.beginShare(now)
	of.proven = !sl.o.ServerQueue // there, other sessions may be waiting already
	if !r.waiter.left && !sl.closed {
		sl.grant(r.waiter, now)
		r.granted = true
	}
}

// released wakes the first waiter of a lock that another session has released.
func (sl *slots) released(id ID) {
	sl.mu.Lock()
	defer sl.mu.Unlock()
	if of := sl.all[id]; of != nil && len(of.queue) > 0 {
		of.queue[0].notify()
	}
}

// lost ends the locks of a session that has ended. Their waiters ask on another one. The host's
// functions run on a goroutine of their own: the one that found the end may serve other callers, or
// end other sessions.
func (sl *slots) lost(s *session, why dblock.Reason) {
	var lost []*hold
	sl.mu.Lock()
	sl.remove(s)
	if s.single != nil {
		s.single.ended = true
		lost = append(lost, s.single)
	}
	for _, of := range sl.all {
		if of.session != s {
			continue
		}
		for _, h := range of.holders {
			h.ended = true
			lost = append(lost, h)
		}
		of.holders = nil
		of.has, of.shows, of.intends, of.yields = false, false, false, false
		of.retryAll() // its announcement has ended with the session, so it would not be notified
		of.detach()
		sl.next(of)
	}
	sl.mu.Unlock()
	for _, h := range lost {
		h.lose(why)
	}
	if why != dblock.ReasonClosed {
		go sl.o.Log.Warn("dblock: a connection is lost, and all session locks on it", "locks", len(lost))
	}
}

// loseAll ends all locks, as the Locker is closed.
func (sl *slots) loseAll() {
	sl.mu.Lock()
	var all []*hold
	for h := range sl.single {
		all = append(all, h)
	}
	for _, of := range sl.all {
		all = append(all, of.holders...)
	}
	sl.mu.Unlock()
	for _, h := range all {
		h.lose(dblock.ReasonClosed)
	}
}
