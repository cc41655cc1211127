package lock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

const (
	cutTTL = 3 * time.Second // long enough for a busy machine to keep a member alive

	// cutFree is after how long at the latest a key is free whose acquisition or release got no
	// answer, while its process lives: three heartbeats and what a statement may take, twice over.
	// Without the list of what is in doubt it would be held for ever.
	cutFree = 15 * time.Second
)

// cutLeases is a process of its own for one trial, on a dialer that strikes.
type cutLeases struct {
	Leases
	suite.Trial
	closePool func()
}

func (v *env) openCut(t *testing.T, c suite.Cut, k int) (*cutLeases, error) {
	x := &cutLeases{}
	x.Begin(t.Context(), c, k)
	var err error
	x.Leases, x.closePool, err = v.e.OpenOn(t.Context(), v.dsn, &x.Dialer, LeaseOptions{TTL: cutTTL, Poll: 50 * time.Millisecond})
	return x, err
}

func (x *cutLeases) end(t *testing.T) { x.CloseBy(t.Context(), x.Close, x.closePool) }

// anAcquireCutAnywhere: whoever is told that he has a lock has it, whoever is told that nothing was
// written has not, and whatever was left behind is given back while the process lives.
func anAcquireCutAnywhere(t *testing.T, v *env) { v.cutAcquires(t, alone, false, true) }

// aReleaseCutAnywhere: a release never fails, and is carried out.
func aReleaseCutAnywhere(t *testing.T, v *env) { v.cutReleases(t, alone) }

// part is what is acquired of a key, and the whole of it: who has that knows that nobody else has anything.
type part struct{ some, whole []dblock.Option }

var alone = part{}

func (v *env) cutAcquires(t *testing.T, p part, cold ...bool) {
	other := v.process(t, LeaseOptions{})
	suite.Everywhere(t, suite.Cuts(cold...), func(c suite.Cut, k int) (bool, error) {
		x, err := v.openCut(t, c, k)
		if err != nil {
			return false, err
		}
		defer x.end(t)
		warm, err := x.Acquire(t.Context(), fmt.Sprintf("warm %v %d", c, k), p.some...)
		if err != nil {
			return false, err
		}
		defer func() { _ = warm.Release(t.Context()) }()
		return x.acquire(t, other, p)
	})
}

// acquire is an acquisition that is cut.
func (x *cutLeases) acquire(t *testing.T, other Leases, p part) (struck bool, err error) {
	key := x.Key()
	x.Arm()
	lock, told := x.TryAcquire(x.Ctx, key, p.some...)
	struck = x.Heal()
	if told != nil {
		return struck, errors.Join(x.excused(struck, told), isFreeSoon(t, other, key, told, p.whole...))
	}
	if lock.Context().Err() != nil { // a stall for so long may cost the member
		return struck, isFreeSoon(t, other, key, context.Cause(lock.Context()), p.whole...)
	}
	if err := isNotHeldTwice(t, lock, other, key, p.whole...); err != nil {
		return struck, err
	}
	if err := lock.Release(t.Context()); err != nil && !errors.Is(err, dblock.ErrLost) {
		return struck, err
	}
	return struck, isFreeSoon(t, other, key, nil, p.whole...)
}

func (v *env) cutReleases(t *testing.T, p part) {
	other := v.process(t, LeaseOptions{})
	suite.Everywhere(t, suite.Cuts(false), func(c suite.Cut, k int) (bool, error) {
		x, err := v.openCut(t, c, k)
		if err != nil {
			return false, err
		}
		defer x.end(t)
		key := x.Key()
		lock, err := x.held(t, key, p.some...)
		if err != nil {
			return false, err
		}
		x.Arm()
		told := lock.Release(x.Ctx)
		struck := x.Heal()
		if told != nil && !errors.Is(told, dblock.ErrLost) {
			return struck, told
		}
		return struck, isFreeSoon(t, other, key, told, p.whole...)
	})
}

// isNotHeldTwice fails if another process has the key while lock is held. If lock was lost, others may have it.
func isNotHeldTwice(t *testing.T, lock *dblock.Lock, other Leases, key string, whole ...dblock.Option) error {
	next, err := other.TryAcquire(t.Context(), key, whole...)
	if err != nil {
		return nil
	}
	if lock.Context().Err() == nil {
		err = fmt.Errorf("%s: two have it", key)
	}
	return errors.Join(err, next.Release(t.Context()))
}

// held is a lock that a process has before it is disturbed. On a busy machine a statement may take longer than it is
// waited for.
func (x *cutLeases) held(t *testing.T, key string, opts ...dblock.Option) (*dblock.Lock, error) {
	for ctx := suite.Soon(t); ; {
		lock, err := x.TryAcquire(ctx, key, opts...)
		if err == nil || ctx.Err() != nil || !suite.IsUnknown(err) && !errors.Is(err, dblock.ErrBusy) && !errors.Is(err, dblock.ErrNotAcquired) {
			return lock, err
		}
	}
}

// excused fails an error that the cut is no excuse for.
func (x *cutLeases) excused(struck bool, err error) error {
	switch {
	case suite.IsUnknown(err), errors.Is(err, dblock.ErrUnavailable), errors.Is(err, dblock.ErrBusy):
	case x.Cut.Cancels() && errors.Is(err, context.Canceled):
	default:
		return fmt.Errorf("told without need: %w", err)
	}
	if !struck {
		return fmt.Errorf("undisturbed, and yet: %w", err)
	}
	return nil
}

// isFreeSoon takes the key as another process. Where its last caller was told that nothing was
// written, it must be free at once.
func isFreeSoon(t *testing.T, other Leases, key string, told error, whole ...dblock.Option) error {
	if suite.Definite(told) && !errors.Is(told, dblock.ErrLost) {
		next, err := other.TryAcquire(t.Context(), key, whole...)
		if err != nil {
			return fmt.Errorf("%s: told that nothing was written (%w), and it is held: %w", key, told, err)
		}
		return next.Release(t.Context())
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), cutFree)
	defer cancel()
	next, err := other.Acquire(ctx, key, whole...)
	if err != nil {
		return fmt.Errorf("%s: not free %v after %v: %w", key, time.Since(began), told, err)
	}
	return next.Release(t.Context())
}
