package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/inventory"
)

// A cut is one kind of disturbance; it is put at the first call on the wire, the second, and so
// on, until a trial passes that none was left for, and in which nobody was told of any trouble.
type cut struct {
	mode faultconn.Mode
	cold bool // the pool's connections are dead to begin with, so that dialling is cut as well
}

const (
	cutTimeout = time.Second // Options.Timeout where a trial has to wait for it
	cutWave    = 8           // trials at once
	slowWave   = 12          // the same, where they mostly wait
	cutPoints  = 400         // more than any protocol here has: the trials would never end
)

// slow tells that the disturbance ends with a timeout only.
func (c cut) slow() bool { return c.mode == faultconn.Stall || c.mode == faultconn.Late }

// cancels tells that it is the caller who gives up.
func (c cut) cancels() bool {
	return c.mode == faultconn.HookBefore || c.mode == faultconn.HookAfter
}

func (c cut) String() string {
	if c.cold {
		return c.mode.String() + ", cold"
	}
	return c.mode.String()
}

func cuts(cold ...bool) (all []cut) {
	for _, cold := range cold {
		for _, mode := range []faultconn.Mode{
			faultconn.CutBefore, faultconn.CutAfter, faultconn.Stall, faultconn.Late,
			faultconn.HookBefore, faultconn.HookAfter,
		} {
			all = append(all, cut{mode, cold})
		}
	}
	return all
}

// everywhere runs the trial with the cut at call 1, 2, 3 … until one is not struck. The slow cuts
// share one line and the quick ones another, so that the waits overlap with work.
func everywhere(t *testing.T, all []cut, trial func(c cut, k int) (disturbed bool, err error)) {
	var points atomic.Int64
	line := func(slow bool, wave int) {
		for _, c := range all {
			if c.slow() != slow {
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
	lines.Go(func() { line(true, slowWave) })
	lines.Go(func() { line(false, cutWave) })
	lines.Wait()
	if points.Load() == 0 {
		t.Error("nothing was ever struck: this test shows nothing")
	}
	t.Logf("%d points in all", points.Load())
}

// pointsOf runs one cut's trials in waves and returns how many were disturbed.
func pointsOf(c cut, wave int, trial func(cut, int) (bool, error)) (points int, err error) {
	for first := 1; first < cutPoints; first += wave {
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

// cutStore is a Store of its own for one trial, on a dialer that strikes.
type cutStore struct {
	*inventory.Store
	dialer faultconn.Dialer
	cut    cut
	k      int

	ctx       context.Context // the caller's
	cancel    context.CancelFunc
	closePool func()
}

func (s *shop) openCut(t *testing.T, c cut, k int, o inventory.Options) (*cutStore, error) {
	if c.slow() {
		o.Timeout = cutTimeout
	}
	x := &cutStore{cut: c, k: k}
	var err error
	if x.Store, x.closePool, err = s.e.OpenOn(t.Context(), s.dsn, &x.dialer, o); err != nil {
		return nil, err
	}
	x.ctx, x.cancel = context.WithCancel(t.Context())
	return x, nil
}

// arm is called when the trial's own statements are the next ones.
func (x *cutStore) arm() {
	if x.cut.cold {
		x.dialer.CloseAll()
	}
	x.dialer.Arm(x.k, x.cut.mode, x.cancel)
}

// end ends the trial: what is late arrives, and nothing of the Store's is left on the server.
func (x *cutStore) end() (struck bool) {
	struck = x.dialer.Disarm()
	x.dialer.Release()
	x.dialer.CloseAll() // a pool would wait for a server that is stalled
	x.cancel()
	x.closePool()
	return struck
}

// definite tells that an error promises that nothing was written.
func definite(err error) bool { return err != nil && !isUnknown(err) }

// excused fails an error that the cut is no excuse for. A single cut connection is none at all. A
// timeout as short as that of the slow cuts can also pass on a machine that is busy.
func (x *cutStore) excused(struck bool, err error) error {
	switch {
	case err == nil:
		return nil
	case x.cut.slow() && (isUnknown(err) || errors.Is(err, dblock.ErrBusy) || errors.Is(err, dblock.ErrUnavailable)):
		return nil
	case !struck:
		return fmt.Errorf("undisturbed, and yet: %w", err)
	case x.cut.cancels() && errors.Is(err, context.Canceled):
		return nil
	}
	return fmt.Errorf("told without need: %w", err)
}

// Cuts runs the tests of cut orders alone, for an engine in another mode than its usual one.
func (e Inventory) Cuts(t *testing.T) {
	for _, strategy := range []inventory.Strategy{inventory.Merge, inventory.SkipLocked} {
		t.Run("AnOrder/"+strategy.String(), func(t *testing.T) {
			anOrderCutAnywhere(t, e.shop(t, inventory.Options{Strategy: strategy}))
		})
	}
	t.Run("ABatch", func(t *testing.T) { aBatchCutAnywhere(t, e.shop(t, inventory.Options{})) })
}

// anOrderCutAnywhere sells one order a trial, each of an SKU of its own.
func anOrderCutAnywhere(t *testing.T, s *shop) {
	everywhere(t, cuts(false, true), func(c cut, k int) (bool, error) {
		r := order(fmt.Sprintf("%v %d", c, k), fmt.Sprintf("%v %d", c, k), 2)
		if _, err := s.Restock(t.Context(), inventory.Adjustment{ID: r.SKU, SKU: r.SKU, Delta: 10}); err != nil {
			return false, err
		}
		x, err := s.openCut(t, c, k, s.o)
		if err != nil {
			return false, err
		}
		x.arm()
		_, told := x.Reserve(x.ctx, r)
		struck := x.end()
		return struck || told != nil, errors.Join(x.excused(struck, told), s.honest(t, r, told))
	})
	books, err := s.Audit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range books {
		if b.Sold != 2 || b.Available != 8 {
			t.Errorf("one order for 2 of 10, sent again until sold: %+v", b)
		}
	}
	s.sound(t)
}

// honest holds what a caller was told against what is recorded, and sends the order again through
// a Store that nothing disturbs. That waits for whatever the server still does with it: it takes
// the row lock.
func (s *shop) honest(t *testing.T, r inventory.Request, told error) error {
	got, err := s.Lookup(t.Context(), r.Key)
	found := err == nil
	switch {
	case err != nil && !errors.Is(err, inventory.ErrNotFound):
		return err
	case told == nil && (!found || got.State != inventory.Sold):
		return fmt.Errorf("%s: told that it is sold, recorded is %+v, %w", r.Key, got, err)
	case definite(told) && found:
		return fmt.Errorf("%s: told that nothing was written, recorded is %+v: %w", r.Key, got, told)
	}
	again, err := reserve(t.Context(), s.Store, r)
	switch {
	case err != nil:
		return fmt.Errorf("%s: told %v, and sent again: %w", r.Key, told, err)
	case told == nil && !again.Replayed:
		return fmt.Errorf("%s: told that it is sold, and sold again", r.Key)
	case definite(told) && again.Replayed:
		return fmt.Errorf("%s: told that nothing was written, and it was sold then: %w", r.Key, told)
	}
	return nil
}
