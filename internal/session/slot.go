package session

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/root"
)

// slot is one lock of the server that this process has, or wants. The server knows no callers, only the session: so it is
// the slot that keeps those of this process apart. It is guarded by Locker.mu.
type slot struct {
	id    ID
	key   string   // what it was called by first
	s     *session // where the server has it for us, or is asked for it
	has   bool     // the server has it for us
	mode  dblock.Mode
	users []*hold  // who of this process has it: one, or several that share it
	queue []*place // who wants it, in the order of their arrival; the first one asks for it
	busy  bool     // a statement about it is under way

	shows, intends bool // what other sessions are told

	noted  time.Time // when its key was noted
	began  time.Time // when this process got it
	since  time.Time // then, or when it last found that nobody else waits
	left   int       // how many more callers of this process come before others who wait
	over   bool      // others wait, and this process has had its turn
	proven bool      // the server has just answered that this process has it: only then it is handed over or shared
	after  bool      // it was given back for another session's sake: whoever is next stands back

	user  [1]*hold // room for what nearly all have one of
	first [1]*place
}

// place is one call that wants a slot's lock.
type place struct {
	ctx  context.Context
	r    *root.Request
	sl   *slot
	wake chan struct{} // where its caller waits; nil: it has not yet
	ask  ask           // the first one of its requests

	told    bool         // there is news: look again; these are guarded by Locker.mu, like the slot
	lock    *dblock.Lock // what it was granted
	hold    hold         // of that
	gone    bool         // its caller has
	refused bool         // it has asked, and another session has it
}

// tell has a call look again; l.mu is held.
func (p *place) tell() {
	p.told = true
	wake(p.wake)
}

// asks makes the next request of a call. Nothing of the last one is under way, but that of a caller who has gone.
func (p *place) asks(op Op) *ask {
	a := &p.ask
	if a.sl != nil {
		a = new(ask)
	}
	a.Step, a.sl, a.p, a.wake = Step{p.sl.id, op}, p.sl, p, p.wake
	return a
}

// A process hands a lock over among its own callers, where other sessions wait for it, once to each who stands in line
// when it begins to, and for no longer than this. So the callers of all processes wait for about as long.
const ownTurn = time.Second

// slot returns the slot of an ID; l.mu is held.
func (l *Locker) slot(id ID, key string) *slot {
	sl := l.slots[id]
	if sl == nil {
		sl = &slot{id: id, key: key}
		sl.users, sl.queue = sl.user[:0], sl.first[:0]
		l.slots[id] = sl
	}
	return sl
}

// enter takes the last place of a line. Who does not wait is refused where somebody of this process is before it. l.mu is held.
func (l *Locker) enter(ctx context.Context, r *root.Request, id ID, wait bool) (*place, error) {
	if l.closed {
		return nil, errClosed()
	}
	sl := l.slot(id, r.Key)
	if !wait && !sl.open(r.Mode) {
		return nil, sl.held(r.Key)
	}
	p := &place{ctx: ctx, r: r, sl: sl}
	sl.queue = append(sl.queue, p)
	l.next(sl)
	return p, nil
}

// open tells whether a call may have the lock, for all that this process knows; l.mu is held. What is being given back, or
// tidied up after a wait, is nobody's.
func (sl *slot) open(mode dblock.Mode) bool {
	return len(sl.queue) == 0 && (len(sl.users) == 0 || sl.mode == dblock.ModeShared && mode == dblock.ModeShared)
}

// held says who has the lock, as far as is known; l.mu is held.
func (sl *slot) held(key string) *dblock.HeldError {
	h := &dblock.HeldError{Key: key}
	if len(sl.users) > 0 {
		h.Holder.Label = cmp.Or(sl.users[0].label, "another caller of this process")
		return h
	}
	if len(sl.queue) == 0 || sl.queue[0].refused {
		h.Holder.Label = "another session"
	}
	return h
}

// next lets go on who can: it grants what this process has to those who come next, and tells the first one to ask for what
// it has not. What nobody wants is given back. l.mu is held.
func (l *Locker) next(sl *slot) {
	for !sl.busy && len(sl.queue) > 0 && !l.closed {
		p := sl.queue[0]
		switch {
		case len(sl.users) > 0 && !sl.shares(p):
			return
		case sl.offers(p) && sl.proven:
			sl.left--
			l.grant(p, time.Now())
			p.tell()
		case sl.offers(p), len(sl.users) > 0 && !p.refused: // it asks first whether this process has the lock still
			p.tell()
			return
		case len(sl.users) > 0:
			return
		case sl.has:
			l.post(sl, frees(sl.mode))
		case p.refused: // it asks again when it hears of it, or when it is time
			return
		default:
			p.tell()
			return
		}
	}
	switch {
	case sl.busy || len(sl.users) > 0 || len(sl.queue) > 0 && !(l.closed && sl.has):
	case sl.has:
		l.post(sl, frees(sl.mode))
	case sl.shows:
		l.post(sl, Hide)
	case sl.intends:
		l.post(sl, Forgo)
	default:
		l.detach(sl)
		if l.slots[sl.id] == sl {
			delete(l.slots, sl.id)
		}
	}
}

// offers tells whether what this process has would do for a call; l.mu is held.
func (sl *slot) offers(p *place) bool { return sl.has && sl.mode == p.r.Mode && !sl.over }

// shares tells whether a call could have the lock beside those of this process who have it; l.mu is held.
func (sl *slot) shares(p *place) bool {
	return sl.mode == dblock.ModeShared && p.r.Mode == dblock.ModeShared
}

// mayAsk tells whether the first of a line has something to ask the server: for the lock, where this process has it not; else
// whether others wait who come first, and, of those whom it was to let in, whether they still do. l.mu is held.
func (sl *slot) mayAsk(p *place) bool {
	if sl.has && len(sl.users) > 0 {
		return sl.shares(p)
	}
	return !sl.has || sl.offers(p)
}

// askAgain has whoever waits not count on what it was last told; l.mu is held.
func (sl *slot) askAgain() {
	for _, p := range sl.queue {
		p.refused = false
	}
}

// turnIsOver tells whether this process has had a lock for so long that other sessions come first; l.mu is held.
func (sl *slot) turnIsOver(now time.Time) bool {
	return sl.left <= 0 || now.Sub(sl.since) >= ownTurn
}

// newTurn begins to count: each caller that waits now has the lock once. l.mu is held.
func (sl *slot) newTurn(now time.Time) {
	sl.since, sl.left, sl.over = now, max(len(sl.queue), 1), false
}

// leaves is what the release of a hold asks of the server: to give the lock back if no caller of this process is to
// have it next, and in any case to prove that the process has had it until now. l.mu is held.
func (l *Locker) leaves(sl *slot) Op {
	switch {
	case sl.busy || len(sl.users) > 0:
		return prove
	case len(sl.queue) > 0 && sl.offers(sl.queue[0]) && !l.closed:
		return l.looks(sl.mode)
	default:
		return frees(sl.mode)
	}
}

// grant makes the first of a line a holder; l.mu is held.
func (l *Locker) grant(p *place, now time.Time) {
	sl := p.sl
	sl.queue = slices.Delete(sl.queue, 0, 1)
	h := &p.hold
	h.begin(l, sl.s, p.r, sl.id, now)
	h.sl, h.wake = sl, p.wake
	p.lock, h.tell = root.NewLock(p.ctx, l, *p.r, h)
	sl.users = append(sl.users, h)
}

// leave gives up a place, and what it may have been granted meanwhile.
func (l *Locker) leave(p *place) {
	l.mu.Lock()
	p.gone = true
	if i := slices.Index(p.sl.queue, p); i >= 0 {
		p.sl.queue = slices.Delete(p.sl.queue, i, i+1)
	}
	if lock := p.lock; lock != nil {
		p.hold.unseen = true
		l.background(func() { _ = lock.Release(context.Background()) })
	} else {
		l.next(p.sl)
	}
	l.mu.Unlock()
}

// attach has a slot live on a session; l.mu is held.
func (l *Locker) attach(sl *slot, s *session) {
	sl.s = s
	s.slots++
}

// detach ends that; l.mu is held.
func (l *Locker) detach(sl *slot) {
	if sl.s != nil {
		sl.s.slots--
		sl.s = nil
	}
}
