package memlease

import (
	"context"
	"maps"
	"slices"

	"github.com/dblock-go/dblock/internal/ctxerr"
	"github.com/dblock-go/dblock/internal/member"
)

// listener receives released keys for one process.
type listener struct {
	keys  map[string]struct{}
	woken chan struct{} // holds one
}

// notify wakes the processes that wait for a key; s.mu is held. An expired row of a waiter counts,
// too: with a clock that a test moves, a process may be late to renew it.
func (s *Server) notify(key string) {
	if len(s.waiters[key]) > 0 {
		s.send(key)
	}
}

// send sends a notification to all processes; s.mu is held.
func (s *Server) send(key string) {
	for e := range s.listeners {
		e.keys[key] = struct{}{}
		select {
		case e.woken <- struct{}{}:
		default:
		}
	}
}

// notifyOf notifies of all leases of a member; s.mu is held.
func (s *Server) notifyOf(id member.ID) {
	of := func(g *grantRow) bool { return g.member == id }
	for key, l := range s.leases {
		if of(&l.grantRow) || slices.ContainsFunc(slices.Collect(maps.Values(l.readers)), of) {
			s.notify(key)
		}
	}
	for key, sema := range s.semas {
		if slices.ContainsFunc(sema.permits, of) {
			s.notify(key)
		}
	}
}

// listen calls wake with keys until ctx ends, never under the mutex.
func (s *Server) listen(ctx context.Context, ready func(), wake func(key string)) error {
	e := &listener{keys: make(map[string]struct{}), woken: make(chan struct{}, 1)}
	s.mu.Lock()
	s.listeners[e] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.listeners, e)
	}()
	ready()
	for {
		select {
		case <-e.woken:
		case <-ctx.Done():
			return ctxerr.Of(ctx)
		}
		s.mu.Lock()
		keys := e.keys
		e.keys = make(map[string]struct{})
		s.mu.Unlock()
		for key := range keys {
			wake(key)
		}
	}
}
