package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/root"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// waitAtServer asks once, as others do, and then waits in the server's own line, on a connection of its own: so who comes
// first is served first, whatever process it is of.
func (l *Locker) waitAtServer(ctx context.Context, r *root.Request, id ID) (*dblock.Lock, error) {
	if ctx.Err() != nil {
		return nil, &dblock.HeldError{Key: r.Key, Wait: sqlerr.NotSent(ctx)}
	}
	lock, err := l.try(ctx, r, id)
	if !errors.Is(err, dblock.ErrNotAcquired) || ctx.Err() != nil {
		return lock, err
	}
	wait, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.ending, func() { cancel(context.Cause(l.ending)) })()
	for failed, short := 0, 0; ; {
		began := time.Now()
		lock, queued, err := l.waitAlone(wait, r, id)
		switch {
		case err == nil:
			return lock, nil
		case errors.Is(context.Cause(wait), dblock.ErrClosed):
			return nil, errClosed()
		case sqlerr.Ended(wait):
			return nil, &dblock.HeldError{Key: r.Key, Holder: dblock.Holder{Label: "another session"}, Wait: context.Cause(wait)}
		case queued: // however often a connection is lost in a long wait
			failed = 0
		}
		// The server may also end a connection while it is being opened.
		refused := errors.Is(err, dblock.ErrUnavailable) && time.Since(began) < time.Second
		if failed == tries || !refused && !l.again(err) {
			return nil, l.named(r.Key, err)
		}
		failed++
		if short++; time.Since(began) >= longestRetry {
			short = 0
		}
		_ = l.sleep(wait, min(time.Millisecond<<min(2*short, 20), longestRetry))
	}
}

// longestRetry bounds the pause between two waits at the server. A wait that lasts as long is not a failure.
const longestRetry = 250 * time.Millisecond

// waitAlone waits on one connection, which the lock then has for itself. queued tells that the server let the call wait. Its
// errors are those of the connection.
func (l *Locker) waitAlone(ctx context.Context, r *root.Request, id ID) (lock *dblock.Lock, queued bool, err error) {
	s, err := l.own(ctx, r.Key)
	if err != nil {
		return nil, false, err
	}
	l.mu.Lock()
	l.running++ // until then Close waits for the connection
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ran(1)
	}()
	if queued, err = s.await(ctx, id, r.Mode == dblock.ModeShared); err != nil {
		why := dblock.ReasonDisconnected
		if ctx.Err() != nil {
			why = dblock.ReasonClosed
		}
		s.lose(why)
		return nil, queued, err
	}
	h := new(hold)
	lock, h.tell = root.NewLock(ctx, l, *r, h)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		go s.lose(dblock.ReasonClosed)
		return nil, true, errClosed()
	}
	h.begin(l, s, r, id, time.Now())
	s.alone = h
	l.alone[h] = struct{}{}
	s.begin()
	return lock, true, nil
}

// await waits for the lock, and makes sure that the connection is fresh then: the server counts its silence from now on.
// queued tells that the server let the call wait.
func (s *session) await(ctx context.Context, id ID, shared bool) (queued bool, err error) {
	if s.l.o.Shared { // else readers of a process that has it would let in others of their own, over and over
		if err := s.showAlone(ctx, id); err != nil {
			return false, err
		}
	}
	if err := s.conn.Wait(ctx, id, shared); err != nil {
		return true, err
	}
	if s.l.o.Shared {
		if _, err := s.run(ctx, []Step{{id, Hide}}); err != nil {
			return true, err
		}
	}
	sent := time.Now()
	if err := s.conn.Ping(ctx); err != nil {
		return true, err
	}
	return true, s.trustAnswer(sent)
}

// showAlone says that this session waits. It can't be said in the moment in which another one looks.
func (s *session) showAlone(ctx context.Context, id ID) error {
	for {
		done, err := s.run(ctx, []Step{{id, Show}})
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

// releaseAlone ends a hold that has a session for itself, and the session with it. held tells whether the server has
// confirmed in time that the process had the lock until now. The end of the connection takes a moment longer. l.mu is held,
// and no more when it returns.
func (l *Locker) releaseAlone(h *hold) (held bool) {
	answer := make(chan bool, 1)
	h.s.alone = nil
	l.background(func() {
		a := ask{Step: Step{h.id, frees(h.mode)}, s: h.s}
		done, err := h.s.steps([]Step{a.Step})
		answer <- a.confirms(err == nil && done[0], err)
		h.s.lose(dblock.ReasonClosed)
	})
	l.mu.Unlock()
	timer := time.NewTimer(longestRelease)
	defer timer.Stop()
	select {
	case held = <-answer:
	case <-timer.C:
	}
	return held
}
