package lease

import (
	"context"
	"time"

	"github.com/dblock-go/dblock"
)

// given is a lease that was granted, and is not held yet: the one before in line has handed it over, or readers are
// still there.
type given struct{ reply }

func (r reply) given() *given { return &given{r} }

func (g *given) back() Back { return g.ask.back(dblock.ModeExclusive) }

// A process hands a key over among its own callers, where other processes wait for it, once to each who stands in
// line when it begins to, and for no longer than this. So the callers of all processes wait for about as long,
// whatever their number.
const ownTurn = time.Second

// mostAlone is after how many hand-overs a process asks again, which was alone whenever it asked.
const mostAlone = 256

// handOver gives a lease to the next one in line, in one statement; false if it is to be given back. It is certain that
// the lease is then as it was, unless the statement has failed. Only the database knows whether other processes wait, and
// is asked when the process has had its turn.
func (l *Locker) handOver(ctx context.Context, h *hold) (handed, certain bool) {
	if !h.life.Alive() {
		return false, true
	}
	if l.nextInLine(h, false) == nil {
		return false, true
	}
	if l.hadItsTurn(h) && l.waits.others(ctx, h.key(), h.life) {
		l.mu.Lock()
		l.lines[h.key()].after = true
		l.mu.Unlock()
		return false, true
	}
	next := l.nextInLine(h, true) // others() has taken a round trip: the waiter may have left since
	if next == nil {
		return false, true
	}
	g := reply{ask: l.asked(next.request), life: h.life, sent: l.o.Clock.Now()}.given()
	g.ask.Instead, g.ask.Contended = h.fences[0].Handle, false
	answer, err := l.acquires[dblock.ModeExclusive].Do(ctx, ask{g.ask, h.life})
	unresolved := err != nil && l.mayStand(err)
	l.answered(h.life, err, answer.Token != 0, g.back())
	if err != nil || answer.Token == 0 {
		l.mu.Lock()
		next.asked = unresolved
		l.mu.Unlock()
		return false, err == nil
	}
	l.reconciler.handles.remove(g.ask.Instead) // its row is the next one's
	g.Answer = answer
	if !l.deliver(next, g) {
		_, _ = l.giveBack(ctx, g.life, g.back())
	}
	return true, true
}

// nextInLine returns the place behind a hold; nil if there is none that the lock can be handed to. If ask is true, the
// place is marked: from now on its caller cannot know whether it is granted the lock.
func (l *Locker) nextInLine(h *hold, ask bool) *place {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || h.place == nil {
		return nil
	}
	of := l.lines[h.key()]
	if len(of.places) < 2 || of.places[1].request.Mode != dblock.ModeExclusive {
		return nil
	}
	next := of.places[1]
	next.asked = next.asked || ask
	return next
}

// hadItsTurn tells whether this process has had the key for long enough, and begins its next turn.
func (l *Locker) hadItsTurn(h *hold) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	of, now := l.lines[h.key()], l.o.Clock.Now()
	if of.turn == 0 {
		of.turn = len(of.places) - 1
		of.left = of.turn
	}
	if of.left > 0 && now.Sub(of.since) < ownTurn {
		of.left--
		return false
	}
	of.since = now
	of.turn = min(2*of.turn, max(mostAlone, len(of.places))) // should nobody else wait, who is there is to be asked for less often
	of.left = of.turn
	return true
}

// deliver notes what was handed over to p; false where p has gone.
func (l *Locker) deliver(p *place, g *given) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.lines[p.line]
	if len(of.places) < 2 || of.places[1] != p {
		return false
	}
	p.given = g
	return true
}

// standsBack tells whether the one whose turn it is shall let another process go first.
func (l *Locker) standsBack(p *place) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.lines[p.line]
	defer func() { of.after = false }()
	return of.after
}
