package batch

import "context"

// turn is a statement in flight.
type turn[Q, A any] struct {
	q     *Queue[Q, A]
	lanes []*lane[Q, A]
	aside bool
}

type turnKey struct{}

// ofTurn is what a Run may ask of its turn, whatever the types of its queue.
type ofTurn interface {
	standAside() bool
	key() string
}

func withTurn(ctx context.Context, t ofTurn) context.Context {
	return context.WithValue(ctx, turnKey{}, t)
}

// alone is the context of a lone caller, who may be called by a statement of another queue.
func alone(ctx context.Context) context.Context {
	if ctx.Value(turnKey{}) == nil {
		return ctx
	}
	return withTurn(ctx, nil)
}

// StandAside is for a Run whose statement is about to wait for a lock, with the context that Run was given. The statement then
// counts against Options.Waiters and no longer against MaxInFlight, and none that carries one of its keys begins before it has ended, as
// that would wait, too. False: there are too many already, or the caller is alone. Then Run must not wait, and answer Alone.
func StandAside(ctx context.Context) bool {
	t, ok := ctx.Value(turnKey{}).(ofTurn)
	return ok && t.standAside()
}

// Key is for a Run with the context that it was given: the key of the lane of all that the statement carries. Empty: there are
// several, or the caller is alone.
func Key(ctx context.Context) string {
	t, ok := ctx.Value(turnKey{}).(ofTurn)
	if !ok {
		return ""
	}
	return t.key()
}

func (t *turn[Q, A]) key() string {
	if len(t.lanes) != 1 {
		return ""
	}
	return t.lanes[0].key
}

func (t *turn[Q, A]) standAside() bool {
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
	for _, l := range t.lanes {
		l.blocked++
	}
	t.q.dispatch()
	return true
}

// IsBlocked tells that calls of a key wait for a lock.
func (q *Queue[Q, A]) IsBlocked(key string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lanes[key]
	return l != nil && (l.blocked > 0 || l.resting)
}
