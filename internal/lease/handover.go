package lease

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/internal/member"
)

// given is a lease that the one before in line has handed over.
type given struct {
	ask   Ask
	token int64
	life  *member.Life
	sent  time.Time
}

func (g *given) back() Back { return Back{Key: g.ask.Key, Token: g.token, Handle: g.ask.Handle} }

// ownTurn is for how long a process hands a key over from one of its own callers to the next, where other
// processes wait for it.
const ownTurn = time.Second

// handOver gives a lease to the next one in line, in one statement; false where it is to be given back. Only the
// database knows whether other processes wait, and is asked when the process has had its turn.
func (l *Locker) handOver(ctx context.Context, h *hold) bool {
	if !h.life.Alive() {
		return false
	}
	next := l.nextInLine(h)
	if next == nil {
		return false
	}
	if l.hadItsTurn(h) && l.waits.others(ctx, h.fence.Key, h.life) {
		l.mu.Lock()
		l.lines[h.fence.Key].after = true
		l.mu.Unlock()
		return false
	}
	g := &given{ask: l.asked(next.request), life: h.life, sent: l.o.Clock.Now()}
	g.ask.Instead, g.ask.Contended = h.fence.Handle, false
	l.mu.Lock()
	next.asked = true
	l.mu.Unlock()
	answer, err := l.acquire.Do(ctx, ask{g.ask, h.life})
	if err != nil && l.mayStand(err) {
		l.doubt(h.life, Back{Key: g.ask.Key, Handle: g.ask.Handle})
	}
	if err != nil || answer.Token == 0 {
		l.mu.Lock()
		next.asked = false
		l.mu.Unlock()
		return false
	}
	g.token = answer.Token
	if !l.deliver(next, g) {
		l.giveBack(ctx, g.back(), g.life)
	}
	return true
}

// nextInLine is who stands behind a hold. Until it has its turn it does not know what becomes of it.
func (l *Locker) nextInLine(h *hold) *place {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || h.place == nil {
		return nil
	}
	of := l.lines[h.fence.Key]
	if len(of.places) < 2 {
		return nil
	}
	return of.places[1]
}

// hadItsTurn tells whether this process has had the key for long enough, and begins its next turn.
func (l *Locker) hadItsTurn(h *hold) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	of, now := l.lines[h.fence.Key], l.o.Clock.Now()
	if now.Sub(of.since) < ownTurn {
		return false
	}
	of.since = now
	return true
}

// deliver notes what was handed over to p; false where p has gone.
func (l *Locker) deliver(p *place, g *given) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.lines[p.key]
	if len(of.places) < 2 || of.places[1] != p {
		return false
	}
	p.given = g
	return true
}

// standsBack tells whether the one whose turn it is shall let another process go first.
func (l *Locker) standsBack(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.lines[key]
	defer func() { of.after = false }()
	return of.after
}
