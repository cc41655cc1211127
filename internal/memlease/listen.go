package memlease

import (
	"context"
	"maps"
	"slices"

	"github.com/dblock-go/dblock/internal/member"
)

// listener hears for one process which keys were given back.
type listener struct {
	keys  map[string]struct{}
	woken chan struct{} // holds one
}

// notify tells of a key that somebody waits for; s.mu is held. A row that has expired counts too: with a clock that
// a test moves, a process may have come too late to say once more that it waits.
func (s *Server) notify(key string) {
	if len(s.waiters[key]) > 0 {
		s.tell(key)
	}
}

// tell has all processes hear something; s.mu is held.
func (s *Server) tell(key string) {
	for e := range s.listeners {
		e.keys[key] = struct{}{}
		select {
		case e.woken <- struct{}{}:
		default:
		}
	}
}

// notifyOf tells of all that a member held; s.mu is held.
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
			return context.Cause(ctx)
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
