package suite

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/faultconn"
)

// A cut is one kind of disturbance; it is put at the first call on the wire, the second, and so
// on, until a trial passes that none was left for, and in which nobody was told of any trouble.
type Cut struct {
	Mode faultconn.Mode
	Cold bool // the pool's connections are dead to begin with, so that dialling is cut as well
}

const (
	CutTimeout = time.Second // Options.Timeout where a trial has to wait for it
	cutWave    = 8           // trials at once
	SlowWave   = 24          // the same, where they mostly wait
	CutPoints  = 400         // more than any protocol here has: the trials would never end
)

// Slow tells that the disturbance ends with a timeout only.
func (c Cut) Slow() bool { return c.Mode == faultconn.Stall || c.Mode == faultconn.Late }

// Cancels tells that it is the caller who gives up.
func (c Cut) Cancels() bool {
	return c.Mode == faultconn.HookBefore || c.Mode == faultconn.HookAfter
}

func (c Cut) String() string {
	if c.Cold {
		return c.Mode.String() + ", cold"
	}
	return c.Mode.String()
}

func Cuts(cold ...bool) (all []Cut) {
	for _, cold := range cold {
		for _, mode := range []faultconn.Mode{
			faultconn.CutBefore, faultconn.CutAfter, faultconn.Stall, faultconn.Late,
			faultconn.HookBefore, faultconn.HookAfter,
		} {
			all = append(all, Cut{mode, cold})
		}
	}
	return all
}

// Everywhere runs the trial with the cut at call 1, 2, 3 … until one is not struck. The slow cuts
// share one line and the quick ones another, so that the waits overlap with work.
func Everywhere(t *testing.T, all []Cut, trial func(c Cut, k int) (disturbed bool, err error)) {
	var points atomic.Int64
	line := func(slow bool, wave int) {
		for _, c := range all {
			if c.Slow() != slow {
				continue
			}
			n, err := pointsOf(c, wave, trial)
			if err != nil {
				t.Errorf("%v: %v", c, err)
			}
			t.Logf("%v: %d points", c, n)
			points.Add(int64(n))
		}
	}
	var lines sync.WaitGroup
	lines.Go(func() { line(true, SlowWave) })
	lines.Go(func() { line(false, cutWave) })
	lines.Wait()
	if points.Load() == 0 {
		t.Error("nothing was ever struck: this test shows nothing")
	}
	t.Logf("%d points in all", points.Load())
}

// pointsOf runs one cut's trials in waves and returns how many were disturbed.
func pointsOf(c Cut, wave int, trial func(Cut, int) (bool, error)) (points int, err error) {
	for first := 1; first < CutPoints; first += wave {
		disturbed, errs := make([]bool, wave), make([]error, wave)
		var wg sync.WaitGroup
		for i := range wave {
			wg.Go(func() {
				for range 3 { // what nobody has disturbed may still be late on a machine that is busy; not three times
					if disturbed[i], errs[i] = trial(c, first+i); disturbed[i] || errs[i] == nil {
						break
					}
				}
				if errs[i] != nil {
					errs[i] = fmt.Errorf("at call %d: %w", first+i, errs[i])
				}
			})
		}
		wg.Wait()
		before := points
		for _, d := range disturbed {
			if d {
				points++
			}
		}
		if err := errors.Join(errs...); err != nil || points-before < wave {
			return points, err
		}
	}
	return points, errors.New("no trial was ever left undisturbed")
}
