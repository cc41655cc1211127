package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// sessions are the connections of a Locker.
type sessions struct {
	*base
	owner   owner
	shared  []*session // each has any number of locks
	conns   int        // those, those with a single lock, and those that are being opened
	opening *opening   // a session that will be shared
}

// owner is informed of what happens on the sessions.
type owner interface {
	// settle records the result of a request; base.mu is held.
	settle(r *request, done bool, err error, now time.Time)

	// lost ends the locks of a session that has ended.
	lost(s *session, why dblock.Reason)

	// released wakes the waiter of a lock that another session has released.
	released(ID)
}

// opening is a session that is being opened, for all callers that need one.
type opening struct {
	done chan struct{}
	err  error
}

// longestOpen is how long a connection may take to open.
const longestOpen = 10 * time.Second

// open makes a session that has no lock yet.
func (ss *sessions) open(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, longestOpen)
	defer cancel()
	sent := time.Now()
	conn, err := ss.driver.Open(ctx, ss.owner.released)
	switch {
	case err == nil:
		return ss.newSession(conn, sent), nil
	case errors.Is(err, dblock.ErrUnsupported), errors.Is(err, dblock.ErrUnavailable), errors.Is(err, dblock.ErrServerTooOld):
		return nil, err
	}
	is := ss.driver.Classify(sqlerr.Unwritten(err))
	if ctx.Err() != nil { // no server has answered
		is = sqlerr.Unavailable
	}
	if sqlerr.Public(is) == nil {
		return nil, err
	}
	return nil, sqlerr.Wrap(is, err, "no connection for session locks", "")
}

// openFirst opens the first shared session.
func (ss *sessions) openFirst(ctx context.Context) error {
	s, err := ss.open(ctx)
	if err != nil {
		return err
	}
	ss.conns, ss.shared = 1, []*session{s}
	s.begin()
	return nil
}

// openSingle returns a session for a single lock.
func (ss *sessions) openSingle(ctx context.Context, key string) (*session, error) {
	ss.mu.Lock()
	if ss.conns >= ss.o.MaxConns {
		defer ss.mu.Unlock()
		return nil, fmt.Errorf("%w: lock %q: all %d connections are in use: each call that waits in the server's queue uses one "+
			"(SessionOptions.MaxConns)", dblock.ErrOverloaded, key, ss.o.MaxConns)
	}
	ss.conns++
	ss.mu.Unlock()
	s, err := ss.open(ctx)
	if err != nil {
		ss.mu.Lock()
		defer ss.mu.Unlock()
		ss.conns--
		return nil, err
	}
	return s, nil
}

// Two sessions share many locks, once one has so many: the server works for the locks of one while
// the callers of the other are answered.
const (
	manyLocks   = 32
	maxSessions = 2
)

// available returns a session that can take one more lock. If there is none, it returns one that is
// being opened, or nil if no more may be. ss.mu is held.
func (ss *sessions) available() (*session, *opening) {
	s := ss.leastUsed()
	room := s != nil && s.slots < ss.driver.MaxLocks()
	crowded := room && s.slots >= manyLocks && len(ss.shared) < maxSessions
	if (!room || crowded) && ss.opening == nil && ss.conns < ss.o.MaxConns {
		ss.conns++
		ss.opening = &opening{done: make(chan struct{})}
		ss.background(ss.openShared)
	}
	if room {
		return s, nil
	}
	return nil, ss.opening
}

// leastUsed is the shared session with the fewest locks; nil: there is none. ss.mu is held.
func (ss *sessions) leastUsed() *session {
	if len(ss.shared) == 0 {
		return nil
	}
	return slices.MinFunc(ss.shared, func(a, b *session) int { return a.slots - b.slots })
}

// openShared opens the session that ss.opening promises.
func (ss *sessions) openShared() {
	s, err := ss.open(ss.ending)
	ss.mu.Lock()
	o := ss.opening
	ss.opening = nil
	o.err = err
	switch {
	case err != nil:
		ss.conns--
	case ss.closed && ss.idle != nil: // Close has ended all sessions that there were
		o.err = errClosed()
		defer s.lose(dblock.ReasonClosed)
	default:
		ss.shared = append(ss.shared, s)
		s.begin()
	}
	ss.mu.Unlock()
	close(o.done)
}

// remove takes a session off the list; ss.mu is held.
func (ss *sessions) remove(s *session) {
	ss.conns--
	ss.shared = slices.DeleteFunc(ss.shared, func(other *session) bool { return other == s })
}

// retire takes a session off the list if it has no lock and is not the only one.
func (ss *sessions) retire(s *session) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	i := slices.Index(ss.shared, s)
	if i < 0 || len(ss.shared) == 1 || s.slots > 0 {
		return false
	}
	ss.shared = slices.Delete(ss.shared, i, i+1)
	return true
}
