package lease

import (
	"context"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/ctxerr"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// margin is by how much earlier than the database this process ends a hold that lasts for d.
func (b *base) margin(d time.Duration) time.Duration { return min(b.member.Margin(), d/4) }

// ExpireIn ends the lease d from now. The local end moves in before the statement is sent, and out
// only after the server has confirmed it.
func (h *hold) ExpireIn(ctx context.Context, d time.Duration) error {
	slot := h.moveSlot()
	select {
	case slot <- struct{}{}:
		defer func() { <-slot }()
	case <-ctx.Done():
		return fmt.Errorf("%w: another call moves the end of %q: nothing was written: %w", dblock.ErrBusy, h.key(), ctxerr.Of(ctx))
	}
	sent := h.l.o.Clock.Now()
	before, d, err := h.moveIn(sent, d)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, h.l.bound())
	defer cancel()
	ours, err := h.l.Driver.ExpireIn(ctx, h.releases(), d)
	switch {
	case err != nil && h.l.Traits.Classify(err) == sqlerr.Unresolved:
		h.mu.Lock()
		h.latestEnd = sent.Add(d) // the statement may take effect at any time, also after one that is sent later
		h.mu.Unlock()
		return fmt.Errorf("%w: the end of %q: %w", dblock.ErrOutcomeUnknown, h.key(), err)
	case err != nil:
		if why := h.moveTo(before); why != "" {
			return &dblock.LostError{Key: h.key(), Reason: why}
		}
		return h.l.explain(err, h.key())
	case !ours:
		why := h.lossReason(before.until)
		h.lose(why)
		return &dblock.LostError{Key: h.key(), Reason: why}
	}
	if why := h.moveTo(ownEnd{sent.Add(d - h.l.margin(d)), before.unknown}); why != "" {
		return &dblock.LostError{Key: h.key(), Reason: why}
	}
	return nil
}

// ownEnd is an end regardless of heartbeats.
type ownEnd struct {
	until   time.Time // for this process; zero: none
	unknown bool      // the database may have another
}

// EndsAt is the end of the hold regardless of heartbeats; zero if there is none.
func (h *hold) EndsAt() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.end.until
}

// moveSlot is a channel of capacity one, for the one call that moves the end.
func (h *hold) moveSlot() chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.moving == nil {
		h.moving = make(chan struct{}, 1)
	}
	return h.moving
}

// moveIn moves the local end in for a statement that is about to be sent. The database's end is
// unknown until the reply. It returns the end so far, and d as it is to be sent.
func (h *hold) moveIn(sent time.Time, d time.Duration) (before ownEnd, bounded time.Duration, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.latestEnd.IsZero() {
		d = min(d, h.latestEnd.Sub(sent))
	}
	why := h.why
	if why == "" && d <= 0 {
		why = dblock.ReasonTimeUp
	}
	if why != "" {
		return before, d, &dblock.LostError{Key: h.key(), Reason: why}
	}
	before = h.end
	h.end.unknown = true
	if until := sent.Add(d - h.l.margin(d)); before.until.IsZero() || until.Before(before.until) {
		h.endAt(until)
	}
	return before, d, nil
}

// moveTo moves the local end after a reply. If the hold has ended meanwhile, it returns the reason:
// the end stays, and so does unknown, so that the database's is given back when the time is up.
func (h *hold) moveTo(end ownEnd) (ended dblock.Reason) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.why == "" {
		h.end.unknown = end.unknown
		h.endAt(end.until)
	}
	return h.why
}

// lossReason is the reason for which the server no longer has a hold whose local end is until.
func (h *hold) lossReason(until time.Time) dblock.Reason {
	if !until.IsZero() && clock.Past(h.l.o.Clock.Now(), until) {
		return dblock.ReasonTimeUp
	}
	return dblock.ReasonStolen
}

// endAt ends the hold at a moment of its own; zero: at none. A lock that is lost is forgotten then.
// h.mu is held.
func (h *hold) endAt(until time.Time) {
	if h.timer != nil {
		h.timer.Stop()
	}
	h.end.until = until
	if h.why != dblock.ReasonReleased && !until.IsZero() {
		h.timer = h.l.o.Clock.AfterFunc(until.Sub(h.l.o.Clock.Now()), func() { h.endIfDue(until) })
	}
}

func (h *hold) stopTimer() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.timer != nil {
		h.timer.Stop()
	}
}

// endIfDue loses the hold, or forgets one that was lost before, unless its end was moved while the
// timer fired.
func (h *hold) endIfDue(until time.Time) {
	h.mu.Lock()
	due, lost := h.end.until.Equal(until), h.why != ""
	h.mu.Unlock()
	switch {
	case due && lost:
		h.forget()
	case due:
		h.lose(dblock.ReasonTimeUp)
	}
}
