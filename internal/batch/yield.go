package batch

import (
	"context"
	"slices"
	"time"
)

// inFlight is a statement in flight.
type inFlight[Q, A any] struct {
	q      *Queue[Q, A]
	lanes  []*lane[Q, A]
	others []*lane[Q, A] // of the other keys of its calls
	aside  bool
}

// all returns the lanes of all of its keys. What waits in those of other keys is offered first.
func (t *inFlight[Q, A]) all() []*lane[Q, A] { return slices.Concat(t.others, t.lanes) }

type yielderKey struct{}

// yielder is what a Run may ask of its turn, whatever the types of its queue.
type yielder interface {
	yield() bool
	key() string
}

func withYielder(ctx context.Context, t yielder) context.Context {
	return context.WithValue(ctx, yielderKey{}, t)
}

// alone is the context of a single caller, which a statement of another queue may be calling.
func alone(ctx context.Context) context.Context {
	if ctx.Value(yielderKey{}) == nil {
		return ctx
	}
	return withYielder(ctx, nil)
}

// Yield is called by Run, with its context, before its statement waits for a lock. The
// statement then counts against Options.Waiters and no longer against MaxInFlight. No statement
// that carries the key of its lane begins before it has ended, as that one would wait, too. Its
// other keys are kept from others for holdsFor. Yield returns false if there are too many already,
// or if the statement is that of a single caller. Then Run must not wait, and must answer Alone.
func Yield(ctx context.Context) bool {
	t, ok := ctx.Value(yielderKey{}).(yielder)
	return ok && t.yield()
}

// Key is called by Run, with its context. It returns the key of the lane of all requests in the
// statement. It is empty if there are several, or if the statement is that of a single caller.
func Key(ctx context.Context) string {
	t, ok := ctx.Value(yielderKey{}).(yielder)
	if !ok {
		return ""
	}
	return t.key()
}

func (t *inFlight[Q, A]) key() string {
	if len(t.lanes) != 1 {
		return ""
	}
	return t.lanes[0].key
}

func (t *inFlight[Q, A]) yield() bool {
	t.q.mu.Lock()
	defer t.q.mu.Unlock()
	switch {
	case t.aside:
		return true
	case t.q.aside >= t.q.o.Waiters:
		return false
	}
	t.aside = true
	t.q.aside++
	t.q.running--
	for _, l := range t.all() {
		l.blocked++
	}
	if len(t.others) > 0 {
		time.AfterFunc(holdsFor, t.letGo)
	}
	t.q.dispatch()
	return true
}

// letGo has other statements carry the other keys of one that stands aside: it waits for its lane,
// and has none of them locked.
func (t *inFlight[Q, A]) letGo() {
	q := t.q
	q.mu.Lock()
	defer q.mu.Unlock()
	others := t.others
	t.others = nil
	for _, l := range others {
		l.flying--
		l.blocked--
		q.offer(l)
		q.dropIdle(l)
	}
	q.unwant()
	q.dispatch()
}

// IsBlocked reports whether calls of a key wait for a lock.
func (q *Queue[Q, A]) IsBlocked(key string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lanes[key]
	return l != nil && l.waits()
}
