package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/fault"
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
	case l.engine.Fault(fault.NoWrite(err)) == fault.Other && ctx.Err() == nil:
		return nil, err
	}
	return nil, fmt.Errorf("%w: no connection for session locks: %w", dblock.ErrUnavailable, err)
}

// sessionOf returns the session that a slot lives on, and finds one for a slot that has none: one with room, or a new one.
func (l *Locker) sessionOf(ctx context.Context, sl *slot) (*session, error) {
	for {
		s, o, err := l.room(sl)
		if s != nil || err != nil {
			return s, err
		}
		select {
		case <-o.done:
			if o.err != nil {
				return nil, o.err
			}
		case <-ctx.Done():
			return nil, fault.NoWrite(context.Cause(ctx))
		}
	}
}

// room attaches a slot to a session that has room for it, or begins to open one.
func (l *Locker) room(sl *slot) (*session, *opening, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if sl.s != nil {
		return sl.s, nil, nil
	}
	if l.ending.Err() != nil {
		return nil, nil, errClosed()
	}
	i := slices.IndexFunc(l.sessions, func(s *session) bool { return len(s.slots) < l.engine.Most() })
	switch {
	case i >= 0:
		l.attach(sl, l.sessions[i])
		return l.sessions[i], nil, nil
	case l.opening == nil && l.conns >= l.o.MaxConns:
		return nil, nil, l.full(sl.key)
	case l.opening == nil:
		l.conns++
		l.opening = &opening{done: make(chan struct{})}
		l.background(l.openShared)
	}
	return nil, l.opening, nil
}

// full says that this process has, or waits for, as many session locks as it may; l.mu is held.
func (l *Locker) full(key string) error {
	return fmt.Errorf("%w: lock %q: this process has or waits for %d session locks already, on %d connections of at most %d locks each: "+
		"release some, allow more connections (SessionOptions.MaxConns), or use leases (NewLease), of which there may be any number",
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
		defer s.lose(dblock.Closed)
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
	if i < 0 || len(l.sessions) == 1 || len(s.slots) > 0 {
		return false
	}
	l.sessions = slices.Delete(l.sessions, i, i+1)
	return true
}
