package lease

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/internal/member"
)

// hold is one lease that this process has.
type hold struct {
	l        *Locker
	place    *place
	life     *member.Life
	fence    dblock.Fence
	detached bool
	began    time.Time
	tell     func(dblock.Reason) // the Lock, that it is lost
	forget   func()              // the life's end

	mu    sync.Mutex
	most  time.Time // its end by WithMaxHold; zero: none
	until time.Time // its end, whatever heartbeats come; zero: none
	timer clock.Timer
	over  bool // lost or released
}

// grant makes the hold of a lease that was asked for at the given time. It came from the database, or from the one
// before in line.
func (l *Locker) grant(
	ctx context.Context, p *place, life *member.Life, r dblock.Request, a Ask, token int64, sent time.Time,
) (*dblock.Lock, error) {
	h := &hold{
		l: l, place: p, life: life, detached: a.Detached, began: l.o.Clock.Now(),
		fence: dblock.Fence{Key: a.Key, Token: token, Handle: a.Handle},
	}
	var lock *dblock.Lock
	lock, h.tell = dblock.NewLock(ctx, l, r, h)
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		l.giveBack(context.WithoutCancel(ctx), h.back(), life)
		return nil, fmt.Errorf("%w: what was granted is given back", dblock.ErrClosed)
	}
	l.holds[h] = struct{}{}
	p.taken = true
	if p.given == nil {
		l.lines[p.key].since = h.began
	}
	l.mu.Unlock()
	if a.Hold > 0 {
		h.mu.Lock()
		h.most = sent.Add(a.Hold)
		h.endAt(h.most)
		h.mu.Unlock()
	}
	h.forget = func() {}
	if !a.Detached {
		h.forget = life.OnEnd(h.lose)
	}
	return lock, nil
}

func (h *hold) back() Back {
	return Back{Key: h.fence.Key, Token: h.fence.Token, Handle: h.fence.Handle}
}

// Fence is what guards check.
func (h *hold) Fence() (dblock.Fence, bool) { return h.fence, true }

// ValidUntil is until when this process may trust the lease.
func (h *hold) ValidUntil() time.Time {
	h.mu.Lock()
	until := h.until
	h.mu.Unlock()
	if h.detached {
		return until
	}
	if trusted := h.life.TrustedUntil(); until.IsZero() || trusted.Before(until) {
		return trusted
	}
	return until
}

// endAt has the hold end at a moment of its own; h.mu is held.
func (h *hold) endAt(until time.Time) {
	if h.timer != nil {
		h.timer.Stop()
	}
	h.until = until
	if !h.over {
		h.timer = h.l.o.Clock.AfterFunc(until.Sub(h.l.o.Clock.Now()), func() { h.lose(dblock.Ended) })
	}
}

// ExpireIn has the lease end d from now.
func (h *hold) ExpireIn(ctx context.Context, d time.Duration) error {
	sent := h.l.o.Clock.Now()
	h.mu.Lock()
	over, most := h.over, h.most
	h.mu.Unlock()
	if over {
		return &dblock.LostError{Key: h.fence.Key, Reason: dblock.Ended}
	}
	if !most.IsZero() {
		d = min(d, most.Sub(sent))
	}
	ctx, cancel := context.WithTimeout(ctx, h.l.bound())
	defer cancel()
	ours, err := h.l.engine.ExpireIn(ctx, h.back(), d)
	switch {
	case err != nil && h.l.engine.Fault(err) == fault.Lost:
		return fmt.Errorf("%w: the end of %q: %w", dblock.ErrOutcomeUnknown, h.fence.Key, err)
	case err != nil:
		return h.l.explain(err, h.fence.Key)
	case !ours:
		h.lose(dblock.Stolen)
		return &dblock.LostError{Key: h.fence.Key, Reason: dblock.Stolen}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endAt(sent.Add(d))
	return nil
}

// stop ends the hold for this process, once; false where it had ended.
func (h *hold) stop() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return false
	}
	h.over = true
	if h.timer != nil {
		h.timer.Stop()
	}
	return true
}

// lose tells whoever uses the lock that it is lost. Those who stand in line may ask at once.
func (h *hold) lose(why dblock.Reason) {
	if !h.stop() {
		return
	}
	h.tell(why)
	if lost := h.l.o.Observer.Lost; lost != nil {
		lost(h.fence.Key, h.l.o.Clock.Now().Sub(h.began), why)
	}
	if why != dblock.Closed {
		h.l.vacate(h)
	}
}

// Release hands the lease over to the next one of this process, or gives it back.
func (h *hold) Release(ctx context.Context, lost bool) {
	h.forget()
	ctx = context.WithoutCancel(ctx)
	stood := h.stop()
	handed := stood && h.l.handOver(ctx, h)
	if !handed && (stood || lost) { // what was lost may still stand, where only we have lost it
		h.l.giveBack(ctx, h.back(), h.life)
	}
	if released := h.l.o.Observer.Released; released != nil && !lost {
		released(h.fence.Key, h.l.o.Clock.Now().Sub(h.began))
	}
	h.l.vacate(h)
	h.l.drop(h)
}

// vacate leaves the hold's place in line, once.
func (l *Locker) vacate(h *hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.place != nil {
		l.remove(h.place)
		h.place = nil
	}
}

// drop forgets a hold that nobody uses any more.
func (l *Locker) drop(h *hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.holds, h)
	if l.empty != nil && len(l.holds) == 0 {
		select {
		case <-l.empty:
		default:
			close(l.empty)
		}
	}
}
