package lease

import (
	"context"
	"slices"
	"sync"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/ctxerr"
)

// setTurns has the sets of this process that wait for the same key ask for it one after another, in
// the order in which they came. A set waits for one key at a time: one that was found held. So no
// set waits for another one while the key is free that both want.
type setTurns struct {
	mu   sync.Mutex
	keys map[string]*setQueue
}

// setQueue is the sets that wait for one key. The first of them asks the database.
type setQueue struct {
	turns []*setTurn
	seen  *dblock.HeldError // what the first one was answered last
}

// setTurn is a set's place in the queue of a key.
type setTurn struct {
	key   string
	first chan struct{} // closed when the set is the first
}

func (s *setTurn) isFirst() bool {
	select {
	case <-s.first:
		return true
	default:
		return false
	}
}

// stillHeld returns the holder of the key that a set waits for; nil: a set waits for none, or the
// key may be free.
func (s *setTurn) stillHeld(asks []AcquireRequest, results []AcquireResult) *dblock.HeldError {
	for i, a := range results {
		if s != nil && asks[i].Key == s.key && a.Held && !a.Holder.Dead && !a.Shared {
			return heldBy(s.key, a)
		}
	}
	return nil
}

// joinAny joins the queue of the first of some keys that sets wait for. It returns nil if there is
// none.
func (t *setTurns) joinAny(keys []string) *setTurn {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, key := range keys {
		if t.keys[key] != nil {
			return t.join(key)
		}
	}
	return nil
}

// move notes that a set was refused for a key, and returns its place in the queue of that key: the
// place that it has, or the last one.
func (t *setTurns) move(from *setTurn, refused *dblock.HeldError) *setTurn {
	t.mu.Lock()
	defer t.mu.Unlock()
	to := from
	if from == nil || from.key != refused.Key {
		t.leaves(from)
		to = t.join(refused.Key)
	}
	t.keys[to.key].seen = refused
	return to
}

// join appends a place; t.mu is held.
func (t *setTurns) join(key string) *setTurn {
	if t.keys == nil {
		t.keys = make(map[string]*setQueue)
	}
	q := t.keys[key]
	if q == nil {
		q = &setQueue{seen: &dblock.HeldError{Key: key}}
		t.keys[key] = q
	}
	s := &setTurn{key: key, first: make(chan struct{})}
	q.turns = append(q.turns, s)
	if len(q.turns) == 1 {
		close(s.first)
	}
	return s
}

// leave gives a place up, if there is one: the next set is the first.
func (t *setTurns) leave(s *setTurn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leaves(s)
}

// leaves is leave; t.mu is held.
func (t *setTurns) leaves(s *setTurn) {
	if s == nil {
		return
	}
	q := t.keys[s.key]
	at := slices.Index(q.turns, s)
	q.turns = slices.Delete(q.turns, at, at+1)
	switch {
	case len(q.turns) == 0:
		delete(t.keys, s.key)
	case at == 0:
		close(q.turns[0].first)
	}
}

// await waits until a set is the first for its key. Its error is a *dblock.HeldError, or
// dblock.ErrClosed.
func (m *sets) await(ctx context.Context, s *setTurn) error {
	if s.isFirst() {
		return nil
	}
	var why error
	select {
	case <-s.first:
		return nil
	case <-ctx.Done():
		why = ctxerr.Of(ctx)
	case <-m.ending.Done():
		why = context.Cause(m.ending)
	}
	m.turns.mu.Lock()
	defer m.turns.mu.Unlock()
	return waitEnded(m.turns.keys[s.key].seen, why)
}
