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

// opening is a session that is being opened, for all who need one.
type opening struct {
	done chan struct{}
	err  error
}

// longestOpen is for how long a connection may take to open.
const longestOpen = 10 * time.Second

// open makes a session that nobody uses yet.
func (l *Locker) open(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, longestOpen)
	defer cancel()
	sent := time.Now()
	conn, err := l.engine.Open(ctx, l.heard)
	switch {
	case err == nil:
		return l.newSession(conn, sent), nil
	case errors.Is(err, dblock.ErrUnsupported), errors.Is(err, dblock.ErrUnavailable), errors.Is(err, dblock.ErrServerTooOld):
		return nil, err
	}
	is := l.engine.Classify(sqlerr.Unwritten(err))
	if ctx.Err() != nil { // no server has answered
		is = sqlerr.Unavailable
	}
	if sqlerr.Public(is) == nil {
		return nil, err
	}
	return nil, sqlerr.Wrap(is, err, "no connection for session locks", "")
}

// sessionOf returns the session that a slot lives on, and finds one for a slot that has none: one with room, or a new one.
// l.mu is held, but for the time that it takes to open one.
func (l *Locker) sessionOf(ctx context.Context, sl *slot) (*session, error) {
	for {
		s, o, err := l.room(sl)
		if s != nil || err != nil {
			return s, err
		}
		l.mu.Unlock()
		select {
		case <-o.done:
			err = o.err
		case <-ctx.Done():
			err = sqlerr.Unwritten(context.Cause(ctx))
		}
		l.mu.Lock()
		if err != nil {
			return nil, err
		}
	}
}

// room attaches a slot to a session that has room for it, or begins to open one; l.mu is held.
func (l *Locker) room(sl *slot) (*session, *opening, error) {
	if sl.s != nil {
		return sl.s, nil, nil
	}
	if l.ending.Err() != nil {
		return nil, nil, errClosed()
	}
	s := l.leastUsed()
	room := s != nil && s.slots < l.engine.Most()
	crowded := room && s.slots >= crowd && len(l.sessions) < spread
	if (!room || crowded) && l.opening == nil && l.conns < l.o.MaxConns {
		l.conns++
		l.opening = &opening{done: make(chan struct{})}
		l.background(l.openShared)
	}
	switch {
	case room:
		l.attach(sl, s)
		return s, nil, nil
	case l.opening == nil:
		return nil, nil, l.full(sl.key)
	}
	return nil, l.opening, nil
}

// A crowd, of so many locks on one session, is spread over two: the server works for those of one while the callers of the other
// are answered.
const (
	crowd  = 32
	spread = 2
)

// leastUsed is the session with the fewest locks; nil: there is none. l.mu is held.
func (l *Locker) leastUsed() *session {
	if len(l.sessions) == 0 {
		return nil
	}
	return slices.MinFunc(l.sessions, func(a, b *session) int { return a.slots - b.slots })
}

// full says that this process has, or waits for, as many session locks as it may; l.mu is held.
func (l *Locker) full(key string) error {
	return fmt.Errorf("%w: lock %q: this process has or waits for %d session locks already, on %d connections of at most %d locks each: "+
		"release some, allow more connections (SessionOptions.MaxConns), or use leases (NewLeaseLocker), of which there may be any number",
		dblock.ErrOverloaded, key, len(l.slots)-1, l.conns, l.engine.Most())
}

// openShared opens the session that l.opening promises.
func (l *Locker) openShared() {
	s, err := l.open(l.ending)
	l.mu.Lock()
	o := l.opening
	l.opening = nil
	o.err = err
	switch {
	case err != nil:
		l.conns--
	case l.closed && l.idle != nil: // hangUp has seen all sessions that there were
		o.err = errClosed()
		defer s.lose(dblock.ReasonClosed)
	default:
		l.sessions = append(l.sessions, s)
		s.begin()
	}
	l.mu.Unlock()
	close(o.done)
}

// forget takes a session off the lists; l.mu is held.
func (l *Locker) forget(s *session) {
	l.conns--
	l.sessions = slices.DeleteFunc(l.sessions, func(other *session) bool { return other == s })
}

// retire tells whether a session is not needed: it has nothing, and is not the only one.
func (l *Locker) retire(s *session) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.sessions, s)
	if i < 0 || len(l.sessions) == 1 || s.slots > 0 {
		return false
	}
	l.sessions = slices.Delete(l.sessions, i, i+1)
	return true
}
