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

// cutIdle is the shortest time-out, so that a connection that stalls is given up soon. cutPatience
// is until when all must go on again.
const (
	cutIdle     = time.Second
	cutPatience = time.Minute
)

// cutProcess is a process of its own for one trial, on a dialer that strikes.
type cutProcess struct {
	dblock.Locker
	suite.Trial
	closePool func()
}

func (x *cutProcess) end(t *testing.T) { x.CloseBy(t.Context(), x.Close, x.closePool) }

// excused fails an error that the cut is no excuse for. That an outcome is not known is never one.
func (x *cutProcess) excused(struck bool, err error) error {
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

// goesOn has other processes acquire the key, and then the one that was cut.
func (x *cutProcess) goesOn(t *testing.T, others ...dblock.Locker) error {
	for _, l := range append(others, x) {
		ctx, cancel := context.WithTimeout(t.Context(), cutPatience)
		lock, err := l.Acquire(ctx, x.Key())
		for errors.Is(err, dblock.ErrUnavailable) && ctx.Err() == nil { // until it has noticed
			lock, err = l.Acquire(ctx, x.Key())
		}
		cancel()
		if err != nil {
			return fmt.Errorf("not to be had again: %w", err)
		}
		if err := lock.Release(t.Context()); err != nil && !errors.Is(err, dblock.ErrLost) {
			return err
		}
	}
	return nil
}

// cutAnywhere cuts a call of one process beside another one. What the call returns must be true,
// and afterwards each process gets the key.
func (s *env) cutAnywhere(t *testing.T, call func(x *cutProcess, other dblock.Locker, key string) (struck bool, told error)) {
	o := SessionOptions{Poll: 50 * time.Millisecond}
	other := s.process(t, o)
	o.IdleTimeout = cutIdle
	suite.Everywhere(t, suite.Cuts(false), func(c suite.Cut, k int) (bool, error) {
		x := &cutProcess{}
		x.Begin(t.Context(), c, k)
		var err error
		if x.Locker, x.closePool, err = s.open(t.Context(), &x.Dialer, o); err != nil {
			return false, err
		}
		defer x.end(t)
		struck, told := call(x, other, x.Key())
		return struck, errors.Join(x.excused(struck, told), x.goesOn(t, other))
	})
}

// acquireCutAnywhere: an acquisition that returns a lock has it. One that returns an error has not,
// for good.
func acquireCutAnywhere(t *testing.T, s *env) {
	s.cutAnywhere(t, func(x *cutProcess, other dblock.Locker, key string) (struck bool, told error) {
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

// ended tells that the holder was told of its loss. A strike may come after the answer, at a read
// of the driver's own: then the holder is told a moment later.
func ended(lock *dblock.Lock, struck bool) bool {
	if struck {
		suite.SleepFor(lock.Context(), cutIdle)
	}
	return lock.Context().Err() != nil
}

// releaseCutAnywhere: a release is carried out, or ends with the connection.
func releaseCutAnywhere(t *testing.T, s *env) {
	s.cutAnywhere(t, func(x *cutProcess, _ dblock.Locker, key string) (struck bool, told error) {
		lock, err := x.TryAcquire(t.Context(), key)
		if err != nil {
			return false, fmt.Errorf("before the cut: %v", err) // whatever it is, it is no effect of the cut
		}
		x.Arm()
		told = lock.Release(x.Ctx)
		return x.Heal(), told
	})
}

// waitCutAnywhere cuts one that waits for another process, until it has the lock.
func waitCutAnywhere(t *testing.T, s *env) {
	s.cutAnywhere(t, func(x *cutProcess, other dblock.Locker, key string) (struck bool, told error) {
		held, err := other.TryAcquire(t.Context(), key)
		if err != nil {
			return false, fmt.Errorf("before the cut: %v", err)
		}
		defer time.AfterFunc(20*time.Millisecond, func() { _ = held.Release(t.Context()) }).Stop()
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

// openCutAnywhere cuts the making of a Locker: it says that the server can't be reached, and leaves
// nothing.
func openCutAnywhere(t *testing.T, s *env) {
	suite.Everywhere(t, suite.Cuts(false), func(c suite.Cut, k int) (bool, error) {
		x := &cutProcess{}
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
		return struck, x.goesOn(t)
	})
}
