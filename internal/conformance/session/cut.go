package session

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
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
	dialer faultconn.Dialer
	cut    suite.Cut
	k      int

	ctx       context.Context // the caller's
	cancel    context.CancelFunc
	closePool func()
}

func (s *env) openCut(t *testing.T, c suite.Cut, k int) (x *cutSession, err error) {
	x = &cutSession{cut: c, k: k}
	x.Locker, x.closePool, err = s.open(t.Context(), &x.dialer, SessionOptions{IdleTimeout: cutIdle, Poll: 50 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	x.ctx, x.cancel = context.WithCancel(t.Context())
	return x, nil
}

// heal ends the disturbance: what is late arrives. The process lives on.
func (x *cutSession) heal() (struck bool) {
	struck = x.dialer.Disarm()
	x.dialer.Release()
	return struck
}

func (x *cutSession) end(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Second)
	defer cancel()
	_ = x.Close(ctx)
	x.dialer.CloseAll()
	x.cancel()
	x.closePool()
}

// excused fails an error that the cut is no excuse for. That an outcome is not known is never one.
func (x *cutSession) excused(struck bool, err error) error {
	switch {
	case err == nil:
		return nil
	case suite.IsUnknown(err):
		return fmt.Errorf("told that nothing is known: %w", err)
	case errors.Is(err, dblock.ErrUnavailable), errors.Is(err, dblock.ErrBusy), errors.Is(err, dblock.ErrLost):
	case x.cut.Cancels() && errors.Is(err, context.Canceled):
	case struck && errors.Is(err, dblock.ErrNotAcquired): // its own connection has it, that was lost and has not ended yet
	default:
		return fmt.Errorf("told without need: %w", err)
	}
	if !struck && !x.cut.Slow() { // a busy machine may lose so short a connection
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

// sessionAcquireCutAnywhere: who is told that he has the lock has it, and who is told anything else has not, for good.
func sessionAcquireCutAnywhere(t *testing.T, s *env) {
	other := s.process(t, SessionOptions{Poll: 50 * time.Millisecond})
	suite.Everywhere(t, suite.Cuts(false), func(c suite.Cut, k int) (bool, error) {
		x, err := s.openCut(t, c, k)
		if err != nil {
			return false, err
		}
		defer x.end(t)
		key := fmt.Sprintf("%v %d", c, k)
		x.dialer.Arm(k, c.Mode, x.cancel)
		lock, told := x.TryAcquire(x.ctx, key)
		struck := x.heal()
		if told != nil {
			return struck, errors.Join(x.excused(struck, told), x.goesOn(t, other, key))
		}
		if next, err := other.TryAcquire(t.Context(), key); err == nil {
			if !c.Slow() && !ended(lock, struck) && time.Now().Before(lock.ValidUntil()) {
				return struck, errors.Join(fmt.Errorf("%s: two have it", key), next.Release(t.Context()))
			}
			_ = next.Release(t.Context())
		}
		err = lock.Release(t.Context())
		return struck, errors.Join(x.excused(struck, err), x.goesOn(t, other, key))
	})
}

// sessionReleaseCutAnywhere: a release is carried out, or ends with the connection.
func sessionReleaseCutAnywhere(t *testing.T, s *env) {
	other := s.process(t, SessionOptions{Poll: 50 * time.Millisecond})
	suite.Everywhere(t, suite.Cuts(false), func(c suite.Cut, k int) (bool, error) {
		x, err := s.openCut(t, c, k)
		if err != nil {
			return false, err
		}
		defer x.end(t)
		key := fmt.Sprintf("%v %d", c, k)
		lock, err := x.TryAcquire(t.Context(), key)
		if err != nil {
			return false, err
		}
		x.dialer.Arm(k, c.Mode, x.cancel)
		told := lock.Release(x.ctx)
		struck := x.heal()
		return struck, errors.Join(x.excused(struck, told), x.goesOn(t, other, key))
	})
}

// sessionWaitCutAnywhere cuts one that waits for another process, until it has the lock.
func sessionWaitCutAnywhere(t *testing.T, s *env) {
	other := s.process(t, SessionOptions{Poll: 50 * time.Millisecond})
	suite.Everywhere(t, suite.Cuts(false), func(c suite.Cut, k int) (bool, error) {
		x, err := s.openCut(t, c, k)
		if err != nil {
			return false, err
		}
		defer x.end(t)
		key := fmt.Sprintf("%v %d", c, k)
		held, err := other.TryAcquire(t.Context(), key)
		if err != nil {
			return false, err
		}
		timer := time.AfterFunc(20*time.Millisecond, func() { _ = held.Release(t.Context()) })
		defer timer.Stop()
		x.dialer.Arm(k, c.Mode, x.cancel)
		lock, told := x.Acquire(x.ctx, key)
		struck := x.heal()
		if told == nil {
			told = lock.Release(t.Context())
		}
		_ = held.Release(t.Context())
		return struck, errors.Join(x.excused(struck, told), x.goesOn(t, other, key))
	})
}

// sessionOpenCutAnywhere cuts the making of a Locker: it says that the server can't be reached, and leaves nothing.
func sessionOpenCutAnywhere(t *testing.T, s *env) {
	suite.Everywhere(t, suite.Cuts(false), func(c suite.Cut, k int) (bool, error) {
		x := &cutSession{cut: c, k: k}
		patience := cutPatience
		if c.Slow() { // nothing else ends it
			patience = cutIdle
		}
		x.ctx, x.cancel = context.WithTimeout(t.Context(), patience)
		defer x.cancel()
		x.dialer.Arm(k, c.Mode, x.cancel)
		l, closePool, err := s.open(x.ctx, &x.dialer, SessionOptions{IdleTimeout: cutIdle})
		struck := x.heal()
		if err != nil {
			x.dialer.CloseAll()
			return struck, x.excused(struck, err)
		}
		x.Locker, x.closePool = l, closePool
		defer x.end(t)
		return struck, x.goesOn(t, x, fmt.Sprintf("%v %d", c, k))
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
