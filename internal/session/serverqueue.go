package session

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/ctxerr"
	"github.com/dblock-go/dblock/internal/root"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// serverQueue is for calls that wait in the server's own queue. It serves the calls of all
// processes in the order of their arrival. Each call waits on a connection of its own.
type serverQueue struct{ *callers }

// wait asks once, as other calls do, and then waits in the server's queue.
func (q serverQueue) wait(ctx context.Context, r *root.Request, id ID) (*dblock.Lock, error) {
	if ctx.Err() != nil {
		return nil, &dblock.HeldError{Key: r.Key, Wait: sqlerr.NotSent(ctx)}
	}
	lock, err := q.try(ctx, r, id)
	var held *dblock.HeldError
	switch {
	case !errors.As(err, &held):
		return lock, err
	case ctx.Err() != nil:
		return nil, &dblock.HeldError{Key: r.Key, Holder: held.Holder, Wait: cmp.Or(held.Wait, ctxerr.Of(ctx))}
	}
	wait, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(q.ending, func() { cancel(context.Cause(q.ending)) })()
	for failed, short := 0, 0; ; {
		began := time.Now()
		lock, queued, err := q.waitOnce(wait, r, id)
		switch {
		case err == nil:
			return lock, nil
		case errors.Is(context.Cause(wait), dblock.ErrClosed):
			return nil, errClosed()
		case sqlerr.Ended(wait):
			return nil, &dblock.HeldError{Key: r.Key, Holder: dblock.Holder{Label: "another session"}, Wait: ctxerr.Of(wait)}
		case queued: // in a long wait, a connection may be lost any number of times
			failed = 0
		}
		// The server may also end a connection while it is being opened.
		refused := errors.Is(err, dblock.ErrUnavailable) && time.Since(began) < time.Second
		if failed == tries || !refused && !q.isRetryable(err) {
			return nil, q.named(r.Key, err)
		}
		failed++
		if short++; time.Since(began) >= longestRetry {
			short = 0
		}
		_ = q.sleep(wait, min(time.Millisecond<<min(2*short, 20), longestRetry))
	}
}

// longestRetry bounds the pause between two waits at the server. A wait that lasts as long is not a
// failure.
const longestRetry = 250 * time.Millisecond

// waitOnce waits on one connection, which the lock then has for itself. queued reports that the
// server let the call wait. The errors are those of the connection.
func (q serverQueue) waitOnce(ctx context.Context, r *root.Request, id ID) (lock *dblock.Lock, queued bool, err error) {
	s, err := q.openSingle(ctx, r.Key)
	if err != nil {
		return nil, false, err
	}
	q.mu.Lock()
	q.running++ // until then Close waits for the connection
	q.mu.Unlock()
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.ran(1)
	}()
	if queued, err = s.wait(ctx, id, r.Mode == dblock.ModeShared); err != nil {
		why := dblock.ReasonDisconnected
		if ctx.Err() != nil {
			why = dblock.ReasonClosed
		}
		s.lose(why)
		return nil, queued, err
	}
	h := new(hold)
	lock, h.signal = root.NewLock(ctx, q.self, *r, h)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		go s.lose(dblock.ReasonClosed)
		return nil, true, errClosed()
	}
	h.begin(q.slots, s, r, id, time.Now())
	s.single = h
	q.single[h] = struct{}{}
	s.begin()
	return lock, true, nil
}

// wait waits for the lock, and checks that the connection is alive then: the server counts its
// silence from now on. queued reports that the server let the call wait.
func (s *session) wait(ctx context.Context, id ID, shared bool) (queued bool, err error) {
	if s.of.o.Shared { // else the readers of a process that has the lock would let in readers of their own without end
		if err := s.showWait(ctx, id); err != nil {
			return false, err
		}
	}
	if err := s.conn.Wait(ctx, id, shared); err != nil {
		return true, err
	}
	if s.of.o.Shared {
		if _, err := s.run(ctx, []Step{{id, Hide}}); err != nil {
			return true, err
		}
	}
	sent := time.Now()
	if err := s.conn.Ping(ctx); err != nil {
		return true, err
	}
	return true, s.trustReply(sent)
}

// showWait announces that this session waits. It fails in the moment in which another session
// looks.
func (s *session) showWait(ctx context.Context, id ID) error {
	for {
		done, err := s.run(ctx, []Step{{id, Show}})
		if err != nil || done[0] {
			return err
		}
	}
}
