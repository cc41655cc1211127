package suite

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/faultconn"
)

// A Cut is one kind of disturbance. It is put at the first call on the wire, the second, and so on,
// until a trial passes that none was left for.
type Cut struct {
	Mode    faultconn.Mode
	Cold    bool          // the pool's connections are dead to begin with, so that dialling is cut as well
	Timeout time.Duration // of a trial that has to wait for it
}

// ErrLate is a trial's error if it was not struck and its time was up. It is repeated with more
// time, and no other beside it.
var ErrLate = errors.New("late without need")

const (
	CutTimeout = time.Second // Options.Timeout if a trial has to wait for it
	cutWave    = 8           // trials at once
	coldWave   = 24          // the same, if they mostly wait and are many
	CutPoints  = 400         // more than any protocol here has: the trials would never end
)

// Slow reports that the disturbance ends with a timeout only.
func (c Cut) Slow() bool { return c.Mode == faultconn.Stall || c.Mode == faultconn.Late }

// Cancels reports that the caller gives up.
func (c Cut) Cancels() bool { return c.Mode == faultconn.HookBefore || c.Mode == faultconn.HookAfter }

func (c Cut) String() string {
	if c.Cold {
		return c.Mode.String() + ", cold"
	}
	return c.Mode.String()
}

func Cuts(cold ...bool) (all []Cut) {
	for _, cold := range cold {
		for _, mode := range []faultconn.Mode{
			faultconn.CutBefore, faultconn.CutAfter, faultconn.Stall, faultconn.Late, faultconn.HookBefore, faultconn.HookAfter,
		} {
			all = append(all, Cut{mode, cold, CutTimeout})
		}
	}
	return all
}

// Everywhere runs the trial with the cut at call 1, 2, 3 … until one is not struck. The slow cuts
// share one line and the quick ones another, so that the waits overlap with work.
func Everywhere(t *testing.T, all []Cut, trial func(c Cut, k int) (struck bool, err error)) {
	var points atomic.Int64
	Crowd(2, func(i int) {
		for _, c := range all {
			if c.Slow() == (i == 0) {
				n, err := pointsOf(c, trial)
				if err != nil {
					t.Errorf("%v: %v", c, err)
				}
				t.Logf("%v: %d points", c, n)
				points.Add(int64(n))
			}
		}
	})
	if points.Load() == 0 {
		t.Error("no call was ever struck: this test shows nothing")
	}
}

// pointsOf runs one cut's trials in waves and returns how many were struck.
func pointsOf(c Cut, trial func(Cut, int) (bool, error)) (points int, err error) {
	wave := map[bool]int{true: coldWave, false: cutWave}[c.Slow() && c.Cold]
	for first := 1; first < CutPoints; first += wave {
		struck, errs := make([]bool, wave), make([]error, wave)
		Crowd(wave, func(i int) { struck[i], errs[i] = trial(c, first+i) })
		for i := range wave {
			for again := c; errors.Is(errs[i], ErrLate) && again.Timeout < CutTimeout<<4; {
				again.Timeout *= 2
				struck[i], errs[i] = trial(again, first+i)
			}
			if errs[i] != nil {
				errs[i] = fmt.Errorf("at call %d: %w", first+i, errs[i])
			}
			if struck[i] {
				points++
			}
		}
		if err := errors.Join(errs...); err != nil || points < first+wave-1 {
			return points, err
		}
	}
	return points, errors.New("no trial was ever left undisturbed")
}

// ClosePool closes a pool with connections of a dialer, which may be stalled: the pool would wait
// for these, and for those that it opens meanwhile to cancel statements.
func ClosePool(d *faultconn.Dialer, closePool func()) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		closePool()
	}()
	for {
		d.CloseAll()
		select {
		case <-closed:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}
