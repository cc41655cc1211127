package session

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock"
)

// linger is for how long a connection must be unused before it is parked. A connection in constant
// use is never parked.
const linger = 2 * time.Millisecond

// keep listens to the server while the connection is unused, and sends a ping after a third of the
// idle timeout.
func (s *session) keep() {
	uses := -1
	for s.ctx.Err() == nil {
		pause := time.Until(s.pingDue())
		if pause <= 0 {
			s.ping()
			continue
		}
		if s.parks {
			pause = min(pause, linger)
		}
		s.sleep(pause)
		s.mu.Lock()
		quiet := s.uses == uses && s.wanted == 0
		uses = s.uses
		s.mu.Unlock()
		if s.parks && quiet {
			s.park()
		}
	}
}

func (s *session) pingDue() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answered.Add(s.of.o.IdleTimeout / 3)
}

func (s *session) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.ctx.Done():
	}
}

// park listens to the server until a caller wants the connection, or a ping is due.
func (s *session) park() {
	select {
	case s.busy <- struct{}{}:
	default:
		return
	}
	defer func() { <-s.busy }()
	ctx, cancel := context.WithDeadline(s.ctx, s.pingDue())
	defer cancel()
	s.mu.Lock()
	wanted := s.wanted > 0
	if !wanted {
		s.unpark = cancel
	}
	s.mu.Unlock()
	if wanted {
		return
	}
	err := s.conn.Park(ctx)
	s.mu.Lock()
	s.unpark = nil
	s.mu.Unlock()
	switch {
	case errors.Is(err, dblock.ErrUnsupported):
		s.parks = false
	case err != nil:
		s.lose(dblock.ReasonDisconnected)
	}
}

// ping asks the server for an answer. It ends a session that is not needed.
func (s *session) ping() {
	if s.of.retire(s) {
		s.lose(dblock.ReasonClosed)
		return
	}
	if late := s.of.o.Observer.HeartbeatLate; late != nil {
		timer := time.AfterFunc(s.of.o.IdleTimeout/3, func() {
			late(time.Until(s.trustedUntil()), errors.New("dblock: a ping of the connection of session locks is not answered"))
		})
		defer timer.Stop()
	}
	closed := false
	err := s.use(s.ctx, func() error {
		// The deadline is read once the connection is free: the statement before may have extended
		// it. When ctx ends, a driver closes the connection, and the server frees its locks.
		ctx, cancel := context.WithDeadline(s.ctx, s.trustedUntil())
		defer cancel()
		sent := time.Now()
		err := s.conn.Ping(ctx)
		closed = s.conn.Closed() || ctx.Err() != nil
		if err == nil {
			s.trust(sent)
		}
		return err
	})
	switch {
	case err != nil && (closed || s.ctx.Err() != nil):
		s.lose(dblock.ReasonDisconnected)
	case err != nil:
		s.sleep(s.of.o.IdleTimeout / 30)
	}
}
