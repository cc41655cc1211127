package lock

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

const frozenLocks = 50

// aFrozenServerHoldsNoCaller: while the server answers nothing, releases return soon, and acquisitions at their
// deadlines. All is free soon after the server answers again.
func aFrozenServerHoldsNoCaller(t *testing.T, v *env) {
	own, server := v.onAServerOfItsOwn(t)
	if server == nil {
		return // it was given, and may serve others
	}
	l, end, err := own.OpenLeases(t.Context(), LeaseOptions{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	locks := make([]*dblock.Lock, frozenLocks)
	for i := range locks {
		locks[i] = suite.Acquire(t, l, fmt.Sprint("key ", i))
	}
	if err := server.Freeze(); err != nil {
		t.Fatal(err)
	}
	inTime := func(what string, call func()) {
		began := time.Now()
		call()
		if took := time.Since(began); took > suite.FrozenWithin {
			t.Errorf("%s took %v", what, took.Round(time.Millisecond))
		}
	}
	inTime("a release", func() { _ = locks[0].Release(t.Context()) })
	inTime("releases", func() { releaseAtOnce(t, locks[1:]) })
	for _, how := range []func(context.Context, string, ...dblock.Option) (*dblock.Lock, error){l.TryAcquire, l.Acquire} {
		inTime("an acquisition", func() {
			ctx, cancel := context.WithTimeout(t.Context(), suite.FrozenDeadline)
			defer cancel()
			if lock, err := how(ctx, "another"); err == nil {
				t.Errorf("acquired %q of a frozen server", lock.Key())
			}
		})
	}
	if err := server.Thaw(); err != nil {
		t.Fatal(err)
	}
	if left := own.untilNothingHeld(t, churnFreeShort); left != "" {
		t.Errorf("after the server answered %s", left)
	}
	if err := l.Close(suite.Soon(t)); err != nil {
		t.Error(err)
	}
}

func releaseAtOnce(t *testing.T, locks []*dblock.Lock) {
	var all sync.WaitGroup
	for _, lock := range locks {
		all.Go(func() { _ = lock.Release(t.Context()) })
	}
	all.Wait()
}

// aCloseOfAFrozenServer: Close returns soon after its context has ended. The process leaves in the background.
func aCloseOfAFrozenServer(t *testing.T, v *env) {
	own, server := v.onAServerOfItsOwn(t)
	if server == nil {
		return // it was given, and may serve others
	}
	for name, within := range map[string]time.Duration{"an ended context": -1, "a short one": suite.FrozenDeadline} {
		l, end, err := own.OpenLeases(t.Context(), LeaseOptions{TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			suite.Acquire(t, l, fmt.Sprint("key ", i))
		}
		if err := server.Freeze(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), within)
		began := time.Now()
		err = l.Close(ctx)
		took := time.Since(began)
		cancel()
		if err := server.Thaw(); err != nil {
			t.Fatal(err)
		}
		if err == nil || took > suite.FrozenWithin {
			t.Errorf("%s: closed after %v: %v", name, took.Round(time.Millisecond), err)
		}
		for late := suite.Soon(t); own.count(t, "SELECT count(*) FROM dblock_member") > 0; time.Sleep(time.Millisecond) {
			if late.Err() != nil {
				t.Fatalf("%s: the process has not left", name)
			}
		}
		end()
	}
}
