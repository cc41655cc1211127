package locksim

import (
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/session"
)

// sessions are the locks that a server keeps for connections. World.mu guards them.
type sessions struct {
	w     *world
	locks map[session.ID]*sessionLock
	conns []*conn // that the server knows
}

// sessionLock is one lock: of one connection alone, or of several that share it.
type sessionLock struct {
	alone   *conn
	shared  []*conn
	shows   []*conn // they wait for it
	intends *conn   // it waits to have it alone
	line    []*waiter
}

// waiter is a connection in the server's own line.
type waiter struct {
	c      *conn
	shared bool
	served chan struct{}
}

func (s *sessions) lock(id session.ID) *sessionLock {
	l := s.locks[id]
	if l == nil {
		l = &sessionLock{}
		s.locks[id] = l
	}
	return l
}

// without is a list less a connection.
func without(of []*conn, c *conn) []*conn {
	return slices.DeleteFunc(slices.Clone(of), func(other *conn) bool { return other == c })
}

// mayTake reports whether a connection may have a lock now.
func (l *sessionLock) mayTake(c *conn, shared bool) bool {
	if l.alone != nil {
		return false
	}
	return shared || len(l.shared) == 0
}

// do executes a step.
func (s *sessions) do(c *conn, step session.Step) (done bool) {
	l := s.lock(step.ID)
	switch step.Op {
	case session.Take:
		if done = l.mayTake(c, false) && len(l.line) == 0; done {
			l.alone = c
		}
	case session.TakeShared:
		if done = l.mayTake(c, true) && len(l.line) == 0 && (l.intends == nil || l.intends == c); done {
			l.shared = append(l.shared, c)
		}
	case session.Free, session.FreeShared, session.Drop, session.DropShared:
		done = s.free(c, step)
	case session.Show:
		done = true
		l.shows = append(without(l.shows, c), c)
	case session.Hide:
		done, l.shows = true, without(l.shows, c)
	case session.Intend:
		if done = l.intends == nil || l.intends == c; done {
			l.intends = c
		}
	case session.Forgo:
		if done = l.intends == c; done {
			l.intends = nil
		}
	case session.HasWaiters:
		done = len(without(l.shows, c)) > 0 || len(l.line) > 0
	case session.HasExclusiveWaiters:
		done = l.intends != nil && l.intends != c
	}
	return done
}

// free releases a lock, and notifies its waiters.
func (s *sessions) free(c *conn, step session.Step) (done bool) {
	l := s.lock(step.ID)
	if step.Op == session.Free || step.Op == session.Drop {
		if done = l.alone == c; done {
			l.alone = nil
		}
	} else if done = slices.Contains(l.shared, c); done {
		l.shared = without(l.shared, c)
	}
	if done && (step.Op == session.Free || step.Op == session.FreeShared) {
		for _, other := range without(l.shows, c) {
			other.notify(step.ID)
		}
	}
	l.serve()
	return done
}

// serve grants the lock to the waiters of the queue that may have it.
func (l *sessionLock) serve() {
	for len(l.line) > 0 && l.mayTake(l.line[0].c, l.line[0].shared) {
		w := l.line[0]
		l.line = l.line[1:]
		if w.shared {
			l.shared = append(l.shared, w.c)
		} else {
			l.alone = w.c
		}
		w.c.last = w.c.p.w.now()
		close(w.served)
	}
}

// has reports whether a connection has a lock, in the way that a step names.
func (s *sessions) has(c *conn, step session.Step) bool {
	l := s.lock(step.ID)
	switch step.Op {
	case session.Take, session.Free, session.Drop:
		return l.alone == c
	case session.TakeShared, session.FreeShared, session.DropShared:
		return slices.Contains(l.shared, c)
	case session.Intend, session.Forgo:
		return l.intends == c
	default:
		return slices.Contains(l.shows, c)
	}
}

// grantedTo reports whether a connection of a process has the lock of a key.
func (s *sessions) grantedTo(p *process, key string) bool {
	l := s.lock(session.ID(key))
	of := func(c *conn) bool { return c != nil && c.p == p }
	return of(l.alone) || slices.ContainsFunc(l.shared, of)
}

// end ends a connection at the server, and with it all its locks.
func (s *sessions) end(c *conn, why string) {
	if c.ended {
		return
	}
	c.ended = true
	s.conns = without(s.conns, c)
	s.w.checker.note("server: ends " + c.name + ": " + why)
	for _, id := range s.ids() {
		l := s.locks[id]
		if l.alone == c {
			l.alone = nil
		}
		if l.intends == c {
			l.intends = nil
		}
		l.shared, l.shows = without(l.shared, c), without(l.shows, c)
		l.line = slices.DeleteFunc(l.line, func(w *waiter) bool { return w.c == c })
		l.serve()
	}
	go c.hearsOfItsEnd()
}

// endAll ends those connections of which f is true.
func (s *sessions) endAll(f func(*conn) bool, why string) {
	for _, c := range slices.Clone(s.conns) {
		if f(c) {
			s.end(c, why)
		}
	}
}

// ids are in order, so that a seed repeats its history.
func (s *sessions) ids() (ids []session.ID) {
	for id := range s.locks {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// endSilent ends a connection that has said nothing for the time that the server allows, by the
// server's clock.
func (w *world) endSilent(c *conn) {
	allowed := time.Duration(float64(w.ttl) * (1 + c.p.plan.drift))
	if w.without == margin {
		allowed = allowed * 85 / 100
	}
	for {
		w.mu.Lock()
		if w.sessions.waits(c) { // a statement is under way
			c.last = w.now()
		}
		left, ended := c.last+allowed-w.now(), c.ended
		if !ended && left <= 0 {
			w.sessions.end(c, "silent")
		}
		w.mu.Unlock()
		if ended || left <= 0 {
			return
		}
		select {
		case <-time.After(left):
		case <-c.seen:
			if w.isEnded(c) {
				return
			}
			time.Sleep(left)
		}
	}
}

// hangUp has the server see that a process was killed, as soon as the network lets it.
func (w *world) hangUp(p *process) {
	time.Sleep(w.dice(p.name+" hangs up").between(100*time.Microsecond, 5*time.Millisecond))
	p.awaitNetwork()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sessions.endAll(func(c *conn) bool { return c.p == p }, "its process was killed")
}

// leaks checks that no connection has, or waits for, anything.
func (s *sessions) leaks() {
	for _, id := range s.ids() {
		l := s.locks[id]
		if l.alone != nil || len(l.shared) > 0 {
			s.w.checker.find("%s is left held", id)
		}
		if len(l.shows) > 0 || l.intends != nil || len(l.line) > 0 {
			s.w.checker.find("%s is left waited for", id)
		}
	}
}

// waits reports whether a connection stands in the server's line.
func (s *sessions) waits(c *conn) bool {
	for _, l := range s.locks {
		if slices.ContainsFunc(l.line, func(w *waiter) bool { return w.c == c }) {
			return true
		}
	}
	return false
}

func (w *world) isEnded(c *conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return c.ended
}
