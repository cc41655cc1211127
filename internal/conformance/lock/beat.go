package lock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// beatCuts are those that strike what no caller waits for.
func beatCuts(cold ...bool) (all []suite.Cut) {
	for _, c := range suite.Cuts(cold...) {
		if !c.Cancels() {
			all = append(all, c)
		}
	}
	return all
}

// sampled is everywhere, and in a short run at every so many-th call only, at others each time.
func sampled(t *testing.T, every int, all []suite.Cut, trial func(c suite.Cut, k int) (disturbed bool, err error)) {
	if os.Getenv(suite.EnvSoak) != "" {
		every = 1
	}
	first := 1 + rand.IntN(every)
	t.Logf("every %d calls, from %d", every, first)
	suite.Everywhere(t, all, func(c suite.Cut, k int) (bool, error) { return trial(c, first+(k-1)*every) })
}

// aJoinCutAnywhere: the first acquisition of a process joins; what is cut in that is cleared up, and the process goes on.
func aJoinCutAnywhere(t *testing.T, v *env) {
	other := v.process(t, LeaseOptions{})
	sampled(t, 4, beatCuts(true), func(c suite.Cut, k int) (bool, error) {
		x, err := v.openCut(t, c, k)
		if err != nil {
			return false, err
		}
		struck, err := x.acquire(t, other, alone)
		return struck, errors.Join(err, x.goesOn(t), x.leavesNothingOpen(t))
	})
}

// aBeatCutAnywhere: the heart goes on, or what it kept is lost and its user is told.
func aBeatCutAnywhere(t *testing.T, v *env) {
	other := v.process(t, LeaseOptions{})
	sampled(t, 2, beatCuts(false), func(c suite.Cut, k int) (bool, error) {
		key := fmt.Sprintf("%v %d", c, k)
		x, err := v.openCut(t, c, k)
		if err != nil {
			return false, err
		}
		lock, err := x.held(t, key)
		if err != nil {
			return false, err
		}
		x.Arm()
		beats(t, lock)
		struck := x.Heal()
		beats(t, lock)
		if err := isNotHeldTwice(t, lock, other, key); err != nil {
			return struck, err
		}
		told := lock.Release(t.Context())
		if told != nil && (!struck || !errors.Is(told, dblock.ErrLost)) {
			return struck, fmt.Errorf("told without need: %w", told)
		}
		return struck, errors.Join(isFreeSoon(t, other, key, told), x.goesOn(t), x.leavesNothingOpen(t))
	})
}

// beats waits until a heartbeat is confirmed to the lock's process, or the lock is lost.
func beats(t *testing.T, lock *dblock.Lock) {
	ctx := suite.Soon(t)
	for before := lock.ValidUntil(); !lock.ValidUntil().After(before); {
		select {
		case <-lock.Context().Done():
			return
		case <-ctx.Done():
			t.Errorf("%q is neither kept nor lost", lock.Key())
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// aLeaveCutAnywhere: what a process held that has closed is free, when its time is up at the latest.
func aLeaveCutAnywhere(t *testing.T, v *env) {
	other := v.process(t, LeaseOptions{})
	sampled(t, 2, beatCuts(false), func(c suite.Cut, k int) (bool, error) {
		key := fmt.Sprintf("%v %d", c, k)
		x, err := v.openCut(t, c, k)
		if err != nil {
			return false, err
		}
		lock, err := x.held(t, key)
		if err != nil {
			return false, err
		}
		x.GiveUp() // no caller waits for its users
		x.Arm()
		reset := time.AfterFunc(cutTTL, x.Dialer.CloseAll) // a pool waits long for a server that is stalled
		told := x.Close(x.Ctx)
		reset.Stop()
		struck := x.Heal()
		if lock.Context().Err() == nil || !errors.Is(told, context.Canceled) {
			return struck, fmt.Errorf("closed with a lock in use: %w", told)
		}
		err = isFreeSoon(t, other, key, nil)
		_ = lock.Release(t.Context())
		return struck, errors.Join(err, x.leavesNothingOpen(t))
	})
}

// goesOn acquires what nobody has.
func (x *cutLeases) goesOn(t *testing.T) error {
	for ctx := suite.Soon(t); ; {
		lock, err := x.Acquire(ctx, "another one, "+x.Key())
		switch {
		case err == nil:
			if err := lock.Release(t.Context()); !errors.Is(err, dblock.ErrLost) {
				return err
			}
		case !errors.Is(err, dblock.ErrOutcomeUnknown) && !errors.Is(err, dblock.ErrUnavailable):
			return fmt.Errorf("it does not go on: %w", err)
		case ctx.Err() != nil:
			return fmt.Errorf("it does not go on in time: %w", err)
		}
	}
}

// leavesNothingOpen ends the process: all that it has dialled is closed.
func (x *cutLeases) leavesNothingOpen(t *testing.T) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Second)
	defer cancel()
	x.Dialer.CloseAll() // a pool would wait for a server that is stalled
	_ = x.Close(ctx)
	x.GiveUp()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		x.closePool()
	}()
	late := suite.Soon(t)
	select {
	case <-closed:
	case <-late.Done():
		return errors.New("the pool does not close: a connection was not given back")
	}
	for x.Dialer.Open() > 0 {
		x.Dialer.Release() // what a pool closes in the background ends with this
		if late.Err() != nil {
			return fmt.Errorf("%d connections are left open", x.Dialer.Open())
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

// heartbeatsReachAllLockers: each Locker of a pool and TTL learns of late heartbeats, in its Observer and in its Log,
// until it is closed.
func heartbeatsReachAllLockers(t *testing.T, v *env) {
	var told [2]heartbeats
	var dialer faultconn.Dialer
	l, other, closePool, err := v.e.OpenPair(t.Context(), v.dsn, &dialer, told[0].options(), told[1].options())
	if err != nil {
		t.Fatal(err)
	}
	defer closePool()
	suite.Release(t, suite.Acquire(t, l, "k")) // it joins
	dialer.Refuse()
	for i := range told {
		if !told[i].grows(t, 0, 0) {
			t.Errorf("locker %d does not learn of late heartbeats", i)
		}
	}
	dialer.Accept()
	if err := other.Close(suite.Soon(t)); err != nil {
		t.Error(err)
	}
	suite.Release(t, suite.Acquire(t, l, "k"))
	closed := told[1].late.Load()
	first, lines := told[0].late.Load(), told[0].lines.Load()
	dialer.Refuse()
	if !told[0].grows(t, first, lines) {
		t.Error("a locker does not learn of late heartbeats after another was closed")
	}
	dialer.Accept()
	if n := told[1].late.Load() - closed; n > 0 {
		t.Errorf("a closed locker learns of %d late heartbeats", n)
	}
	_ = l.Close(suite.Soon(t)) // its connection may be one of those that were closed
}

// heartbeats counts what a Locker says of late ones.
type heartbeats struct{ late, lines atomic.Int64 }

func (h *heartbeats) options() LeaseOptions {
	return LeaseOptions{
		TTL: 6 * time.Second, Log: slog.New(slog.NewTextHandler(h, nil)),
		Observer: dblock.Observer{HeartbeatLate: func(time.Duration, error) { h.late.Add(1) }},
	}
}

// Write counts a line of the log.
func (h *heartbeats) Write(line []byte) (int, error) {
	h.lines.Add(1)
	return len(line), nil
}

// grows waits until there are more than late calls of the Observer, and more than lines in the log.
func (h *heartbeats) grows(t *testing.T, late, lines int64) bool {
	for ctx := suite.Soon(t); h.late.Load() <= late || h.lines.Load() <= lines; {
		if !suite.SleepFor(ctx, time.Millisecond) {
			return false
		}
	}
	return true
}
