package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/batch"
	"github.com/dblock-go/dblock/internal/ctxerr"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/root"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// tries is how often a call asks again at once for a key without a known holder: its row was locked
// for a moment, or another process inserted the row at the same time.
const tries = 6

// exclusive acquires one key for one holder.
type exclusive struct{ *holds }

// request asks the database for an exclusive lease. It returns the lock, or the holder.
func (x *exclusive) request(ctx context.Context, w *waiter, r root.Request) (*dblock.Lock, *dblock.HeldError, error) {
	var gone member.ID
	over := false
	for n := 1; ; n++ {
		if w.pending != nil {
			refused, err := x.awaitReaders(ctx, w)
			if refused != nil || err != nil {
				return nil, refused, err
			}
		}
		got, err := x.once(ctx, r, func(a *AcquireRequest) { w.adjust(a, gone, over) })
		if err != nil {
			return nil, nil, err
		}
		answer := got.AcquireResult
		x.checkPending(w, &answer)
		if answer.Token != 0 {
			x.admitReaders(w)
		}
		switch {
		case answer.Token != 0 && got.request.DespiteReaders:
			x.dropPending(w)
			w.pending = got.given()
			continue
		case answer.Token != 0:
			x.dropPending(w)
			lock, err := x.grant(ctx, w, got, r)
			return lock, nil, err
		case answer.Shared && n < tries:
			if refused, err := x.anyReaders(ctx, w); refused != nil || err != nil {
				return nil, refused, err
			}
			over = true
			continue
		case answer.Holder.Dead && n < tries:
			answer.Held = false
			if answer.Holder.Member != gone && x.evictions.evict(ctx, x.requester, answer.Holder.Member) {
				gone = answer.Holder.Member
				continue
			}
		}
		refused, err := x.pauseOrRefuse(ctx, r, got.inc, answer, n)
		if refused != nil || err != nil {
			return nil, refused, err
		}
		if over && w.waits {
			x.yieldReaders(ctx, w)
		}
	}
}

// checkPending checks if w still has the lease that was granted to it before. Its row may also have
// been locked for a moment, when a lease was asked for instead of that one.
func (x *exclusive) checkPending(w *waiter, a *AcquireResult) {
	switch {
	case w.pending == nil || a.Token != 0:
	case a.Held && a.Holder.Token == w.pending.Token:
		a.Held = false
	case a.Held || a.Shared:
		x.dropPending(w)
	}
}

// dropPending forgets what was granted to p: its row is another acquisition's, or its member is
// gone.
func (x *exclusive) dropPending(w *waiter) {
	if w.pending != nil {
		x.reconciler.handles.remove(w.pending.request.Handle)
		w.pending = nil
	}
}

// adjust has an ask go on from what came before it.
func (w *waiter) adjust(a *AcquireRequest, gone member.ID, over bool) {
	switch {
	case w.pending != nil:
		a.Instead, a.Contended = w.pending.request.Handle, false
	case over:
		a.DespiteReaders, a.DeadMember, a.Contended = true, gone, false
		a.Hold, a.Detached, a.Data = 0, false, nil // they count from when it is held
	case gone != (member.ID{}):
		a.DeadMember, a.Contended = gone, false
	}
}

// pauseOrRefuse pauses if it is worth asking again at once. Else it returns the holder of the key.
func (q *requester) pauseOrRefuse(
	ctx context.Context, r root.Request, inc *member.Incarnation, answer AcquireResult, n int,
) (*dblock.HeldError, error) {
	switch {
	case answer.Held, n >= tries && (answer.Shared || answer.Holder.Dead):
		refused := heldBy(r.Key, answer)
		q.queues.see(r, refused)
		return refused, nil
	case n >= tries:
		return nil, q.lockedNow(ctx, r)
	}
	if answer.MemberGone {
		inc.CheckSoon()
	}
	if err := q.sleep(ctx, time.Millisecond<<n); err != nil {
		return nil, q.unanswered(ctx, err, r)
	}
	return nil, nil
}

// lockedNow is the error of a call that found no holder of its key, and could not have it all
// the same.
func (q *requester) lockedNow(ctx context.Context, r root.Request) error {
	if ctx.Err() != nil {
		return waitEnded(q.queues.lastSeen(r), ctxerr.Of(ctx))
	}
	return fmt.Errorf("%w: lock %q: its row is locked at this moment: nothing was written", dblock.ErrBusy, r.Key)
}

// reply is an answer, and what it answers.
type reply struct {
	AcquireResult
	request AcquireRequest
	inc     *member.Incarnation
	sent    time.Time
}

// once sends one ask, again if nothing of it was written, and puts an error into words.
func (q *requester) once(ctx context.Context, r root.Request, adjust func(*AcquireRequest)) (reply, error) {
	for n := 1; ; n++ {
		if err := q.mayAcquire(); err != nil {
			return reply{}, err
		}
		inc, err := q.member.Current(ctx)
		if err != nil {
			if !q.again(ctx, err, n) {
				return reply{}, q.unjoined(ctx, err, r)
			}
			continue
		}
		got := reply{request: q.asked(r), inc: inc, sent: q.o.Clock.Now()}
		adjust(&got.request)
		queue := q.acquires[r.Mode]
		if got.request.NoTickets {
			queue = q.behindTickets
		}
		got.AcquireResult, err = queue.Do(ctx, acquisition{got.request, inc})
		q.answered(inc, err, got.Token != 0, got.request.undo(r.Mode))
		if err == nil {
			return got, nil
		}
		if !q.again(ctx, err, n) {
			return reply{}, asLate(ctx, q.unanswered(ctx, err, r), got.request.Handle, inc)
		}
	}
}

// answered takes over how a statement that asked has ended: what may have been granted is
// reconciled, and what was not granted is forgotten. If the caller left it before, late does that.
func (q *requester) answered(inc *member.Incarnation, err error, granted bool, backs ...ReleaseRequest) {
	switch {
	case errors.Is(err, batch.ErrAbandoned):
	case err != nil && q.mayBeHeld(err):
		q.releaseUnresolved(inc, backs...)
	case err != nil || !granted:
		q.reconciler.handles.remove(backs[0].Handle)
	}
}

// unjoined is the error of a call whose process could not register its member. Nothing was asked
// for.
func (q *requester) unjoined(ctx context.Context, err error, r root.Request) error {
	switch {
	case errors.Is(err, dblock.ErrClosed):
		return err
	case ctx.Err() != nil:
		return waitEnded(q.queues.lastSeen(r), sqlerr.NotSent(ctx))
	}
	return sqlerr.Wrap(q.Traits.Classify(err).Harmless(), err, fmt.Sprintf("lock %q: nothing was asked for", r.Key), "")
}

// again pauses and reports whether a failed statement is to be sent again: nothing of it was
// written. A pool may hold several broken connections, for example after a restart of the server.
func (q *requester) again(ctx context.Context, err error, n int) bool {
	if is := q.Traits.Classify(err); is != sqlerr.Retryable && is != sqlerr.Unavailable || errors.Is(err, dblock.ErrClosed) {
		return false
	}
	return n < tries && q.sleep(ctx, time.Millisecond<<n) == nil
}

// asked makes the AcquireRequest of a request, under a handle of its own, which is noted before
// anything is sent.
func (q *requester) asked(r root.Request) AcquireRequest {
	a := AcquireRequest{
		Key: r.Key, Handle: member.NewID(), Label: q.o.Label, Data: r.Data, Detached: r.Detached, Permits: r.Permits, Limit: r.Limit,
	}
	if r.Label != nil {
		a.Label = *r.Label
	}
	if r.MaxHold != nil {
		a.Hold = *r.MaxHold
	}
	q.reconciler.handles.add(a.Handle)
	a.Contended = q.queues.contended(r)
	return a
}

func heldBy(key string, a AcquireResult) *dblock.HeldError {
	h := &dblock.HeldError{Key: key, Remaining: a.Holder.Remaining}
	if a.Held {
		h.Holder = dblock.Holder{Label: a.Holder.Label, Token: a.Holder.Token}
		if a.Holder.Member != (member.ID{}) {
			h.Holder.Member = a.Holder.Member.String()
		}
	}
	return h
}

// mayBeHeld reports whether a lease may have been granted, or may yet be, despite the error.
func (q *requester) mayBeHeld(err error) bool {
	switch {
	case errors.Is(err, dblock.ErrOutcomeUnknown):
		return true
	case errors.Is(err, batch.ErrNotSent), errors.Is(err, dblock.ErrOverloaded), errors.Is(err, dblock.ErrClosed):
		return false // the queue refused it
	}
	return q.Traits.Classify(err) == sqlerr.Unresolved
}

// unanswered puts an error into the words of package dblock.
func (q *requester) unanswered(ctx context.Context, err error, r root.Request) error {
	switch {
	case errors.Is(err, dblock.ErrOutcomeUnknown), errors.Is(err, dblock.ErrClosed), errors.Is(err, dblock.ErrOverloaded):
		return err
	case sqlerr.Ended(ctx) && !q.mayBeHeld(err):
		return waitEnded(q.queues.lastSeen(r), ctxerr.Of(ctx))
	default:
		return q.explain(err, r.Key)
	}
}

func (b *base) explain(err error, key string) error {
	return sqlerr.Wrap(b.Traits.Classify(err), err, fmt.Sprintf("lock %q", key), "no reply; if the lock was granted, dblock releases it")
}

// bound is how long a statement may take, with what it waits for.
func (b *base) bound() time.Duration { return statementBound(b.member) }

// statementBound is half of the TTL: a statement that takes longer grants nothing (see By). It is
// 10 s at most, so that no caller waits for hours for a silent connection.
func statementBound(m *member.Member) time.Duration { return min(m.TTL()/2, 10*time.Second) }
