package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
)

// waitAtServer asks once, as others do, and then waits in the server's own line, on a connection of its own: so who comes
// first is served first, whatever process it is of.
func (l *Locker) waitAtServer(ctx context.Context, r *dblock.Request, id ID) (*dblock.Lock, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, &dblock.HeldError{Key: r.Key, Wait: err}
	}
	lock, err := l.try(ctx, r, id)
	if !errors.Is(err, dblock.ErrNotAcquired) || ctx.Err() != nil {
		return lock, err
	}
	for n := 0; ; n++ {
		lock, err = l.waitAlone(ctx, r, id)
		if err == nil || n == tries || !l.again(err) || ctx.Err() != nil {
			return lock, err
		}
	}
}

// waitAlone waits on one connection, which the lock then has for itself.
func (l *Locker) waitAlone(ctx context.Context, r *dblock.Request, id ID) (*dblock.Lock, error) {
	s, err := l.own(ctx, r.Key)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.running++ // until then Close waits for the connection
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ran(1)
	}()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.ending, func() { cancel(context.Cause(l.ending)) })()
	if err := s.await(ctx, id, r.Mode == dblock.Shared); err != nil {
		why := dblock.Disconnected
		if ctx.Err() != nil {
			why = dblock.Closed
		}
		s.lose(why)
		switch {
		case errors.Is(context.Cause(ctx), dblock.ErrClosed):
			return nil, errClosed()
		case ctx.Err() != nil:
			return nil, &dblock.HeldError{Key: r.Key, Holder: dblock.Holder{Label: "another session"}, Wait: context.Cause(ctx)}
		}
		return nil, l.named(r.Key, err)
	}
	h := new(hold)
	var lock *dblock.Lock
	lock, h.tell = dblock.NewLock(ctx, l, *r, h)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		go s.lose(dblock.Closed)
		return nil, fmt.Errorf("%w: what was granted is given back", dblock.ErrClosed)
	}
	h.begin(l, s, r, id, time.Now())
	s.alone = h
	l.alone[h] = struct{}{}
	s.begin()
	return lock, nil
}

// await waits for the lock, and makes sure that the connection is fresh then: the server counts its silence from now on.
func (s *session) await(ctx context.Context, id ID, shared bool) error {
	if s.l.o.Shared { // else readers of a process that has it would let in others of their own, over and over
		if err := s.showAlone(ctx, id); err != nil {
			return err
		}
	}
	if err := s.conn.Wait(ctx, id, shared); err != nil {
		return err
	}
	if s.l.o.Shared {
		if _, err := s.conn.Run(ctx, []Step{{id, Hide}}); err != nil {
			return err
		}
	}
	sent := time.Now()
	if err := s.conn.Ping(ctx); err != nil {
		return err
	}
	return s.trustAnswer(sent)
}

// showAlone says that this session waits. It can't be said in the moment in which another one looks.
func (s *session) showAlone(ctx context.Context, id ID) error {
	for {
		done, err := s.conn.Run(ctx, []Step{{id, Show}})
		if err != nil || done[0] {
			return err
		}
	}
}

// own returns a session for one caller alone.
func (l *Locker) own(ctx context.Context, key string) (*session, error) {
	l.mu.Lock()
	if l.conns >= l.o.MaxConns {
		defer l.mu.Unlock()
		return nil, fmt.Errorf("%w: lock %q: all of %d connections are in use: each call that waits in the server's line takes one "+
			"(SessionOptions.MaxConns)", dblock.ErrOverloaded, key, l.o.MaxConns)
	}
	l.conns++
	l.mu.Unlock()
	s, err := l.open(ctx)
	if err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.conns--
		return nil, err
	}
	return s, nil
}

// releaseAlone ends a hold that has a session for itself, and the session with it. It is over when the server has freed the
// lock: the end of a connection takes a moment longer.
func (l *Locker) releaseAlone(ctx context.Context, h *hold) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), longestRelease)
	defer cancel()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ended(h)
	}()
	l.mu.Lock()
	gone := h.gone
	h.told, h.gone = true, true
	h.s.alone = nil
	l.mu.Unlock()
	if gone {
		return
	}
	done := make(chan struct{})
	l.mu.Lock()
	l.background(func() {
		defer close(done)
		_, _ = h.s.steps([]Step{{h.id, frees(h.mode)}})
		h.s.lose(dblock.Closed)
	})
	l.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
	}
}
