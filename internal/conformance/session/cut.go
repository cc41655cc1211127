package session

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// cutIdle is the shortest that a connection may be silent, so that one which stalls is given up soon; cutPatience is until when
// at the latest all goes on again: a machine that is busy takes longer than that to open a connection, now and then.
const (
	cutIdle     = time.Second
	cutPatience = time.Minute
)

// cutSession is a process of its own for one trial, on a dialer that strikes.
type cutSession struct {
	dblock.Locker
	suite.Trial
	closePool func()
}

func (s *env) openCut(t *testing.T, c suite.Cut, k int) (x *cutSession, err error) {
	x = &cutSession{}
	x.Begin(t.Context(), c, k)
	x.Locker, x.closePool, err = s.open(t.Context(), &x.Dialer, SessionOptions{IdleTimeout: cutIdle, Poll: 50 * time.Millisecond})
	return x, err
}

func (x *cutSession) end(t *testing.T) { x.CloseBy(t.Context(), x.Close, x.closePool) }

// excused fails an error that the cut is no excuse for. That an outcome is not known is never one.
func (x *cutSession) excused(struck bool, err error) error {
	switch {
	case err == nil:
		return nil
	case suite.IsUnknown(err):
		return fmt.Errorf("told that nothing is known: %w", err)
	case errors.Is(err, dblock.ErrUnavailable), errors.Is(err, dblock.ErrBusy), errors.Is(err, dblock.ErrLost):
	case x.Cut.Cancels() && errors.Is(err, context.Canceled):
	case struck && errors.Is(err, dblock.ErrNotAcquired): // its own connection has it, that was lost and has not ended yet
	default:
		return fmt.Errorf("told without need: %w", err)
	}
	if !struck && !x.Cut.Slow() { // a busy machine may lose so short a connection
		return fmt.Errorf("undisturbed, and yet: %w", err)
	}
	return nil
}

// goesOn has another process take the key, and then the one that was cut.
func (x *cutSession) goesOn(t *testing.T, other dblock.Locker, key string) error {
	for _, l := range []dblock.Locker{other, x} {
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), cutPatience)
		lock, err := l.Acquire(ctx, key)
		for errors.Is(err, dblock.ErrUnavailable) && ctx.Err() == nil { // until it has noticed
			lock, err = l.Acquire(ctx, key)
		}
		cancel()
		if err != nil {
			return fmt.Errorf("not to be had again after %v: %w", time.Since(began), err)
		}
		if err := lock.Release(t.Context()); err != nil && !errors.Is(err, dblock.ErrLost) {
			return err
		}
	}
	return nil
}

// cutAnywhere cuts a call of one process beside another one. What the call returns must be true, and afterwards each
// process gets the key.
func (s *env) cutAnywhere(t *testing.T, call func(x *cutSession, other dblock.Locker, key string) (struck bool, told error)) {
	other := s.process(t, SessionOptions{Poll: 50 * time.Millisecond})
	suite.Everywhere(t, suite.Cuts(false), func(c suite.Cut, k int) (bool, error) {
		x, err := s.openCut(t, c, k)
		if err != nil {
			return false, err
		}
		defer x.end(t)
		struck, told := call(x, other, x.Key())
		return struck, errors.Join(x.excused(struck, told), x.goesOn(t, other, x.Key()))
	})
}

// sessionAcquireCutAnywhere: an acquisition that returns a lock has it. One that returns an error has not, for good.
func sessionAcquireCutAnywhere(t *testing.T, s *env) {
	s.cutAnywhere(t, func(x *cutSession, other dblock.Locker, key string) (struck bool, told error) {
		x.Arm()
		lock, told := x.TryAcquire(x.Ctx, key)
		struck = x.Heal()
		if told != nil {
			return struck, told
		}
		if next, err := other.TryAcquire(t.Context(), key); err == nil {
			if !x.Cut.Slow() && !ended(lock, struck) && time.Now().Before(lock.ValidUntil()) {
				t.Errorf("%s: two have it", key)
			}
			_ = next.Release(t.Context())
		}
		return struck, lock.Release(t.Context())
	})
}

// sessionReleaseCutAnywhere: a release is carried out, or ends with the connection.
func sessionReleaseCutAnywhere(t *testing.T, s *env) {
	s.cutAnywhere(t, func(x *cutSession, _ dblock.Locker, key string) (struck bool, told error) {
		lock, err := x.TryAcquire(t.Context(), key)
		if err != nil {
			return false, fmt.Errorf("before the cut: %v", err) // whatever it is, it is no effect of the cut
		}
		x.Arm()
		told = lock.Release(x.Ctx)
		return x.Heal(), told
	})
}

// sessionWaitCutAnywhere cuts one that waits for another process, until it has the lock.
func sessionWaitCutAnywhere(t *testing.T, s *env) {
	s.cutAnywhere(t, func(x *cutSession, other dblock.Locker, key string) (struck bool, told error) {
		held, err := other.TryAcquire(t.Context(), key)
		if err != nil {
			return false, fmt.Errorf("before the cut: %v", err)
		}
		timer := time.AfterFunc(20*time.Millisecond, func() { _ = held.Release(t.Context()) })
		defer timer.Stop()
		x.Arm()
		lock, told := x.Acquire(x.Ctx, key)
		struck = x.Heal()
		if told == nil {
			told = lock.Release(t.Context())
		}
		_ = held.Release(t.Context())
		return struck, told
	})
}

// sessionOpenCutAnywhere cuts the making of a Locker: it says that the server can't be reached, and leaves nothing.
func sessionOpenCutAnywhere(t *testing.T, s *env) {
	suite.Everywhere(t, suite.Cuts(false), func(c suite.Cut, k int) (bool, error) {
		x := &cutSession{}
		patience := cutPatience
		if c.Slow() { // nothing else ends it
			patience = cutIdle
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		x.Begin(ctx, c, k)
		defer x.GiveUp()
		x.Arm()
		l, closePool, err := s.open(x.Ctx, &x.Dialer, SessionOptions{IdleTimeout: cutIdle})
		struck := x.Heal()
		if err != nil {
			x.Dialer.CloseAll()
			return struck, x.excused(struck, err)
		}
		x.Locker, x.closePool = l, closePool
		defer x.end(t)
		return struck, x.goesOn(t, x, x.Key())
	})
}

// ended tells that the holder was told of its loss. Where the strike came at all, it may have come after the answer, at a read of
// the driver's own that waits for what comes next: then he is told a moment later.
func ended(lock *dblock.Lock, struck bool) bool {
	if struck {
		select {
		case <-lock.Context().Done():
		case <-time.After(cutIdle):
		}
	}
	return lock.Context().Err() != nil
}
