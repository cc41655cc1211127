package lock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// nothingWorksAfterClose calls every method of a Locker that was closed.
func nothingWorksAfterClose(t *testing.T, p Place) {
	a, b := p.process(t, LeaseOptions{}), p.process(t, LeaseOptions{})
	lock := suite.Acquire(t, b, "k")
	if err := a.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	calls := map[string]func() error{
		"Acquire":       func() error { _, err := a.Acquire(ctx, "k"); return err },
		"TryAcquire":    func() error { _, err := a.TryAcquire(ctx, "free"); return err },
		"AcquireAll":    func() error { _, err := a.AcquireAll(ctx, []string{"x", "y"}); return err },
		"TryAcquireAll": func() error { _, err := a.TryAcquireAll(ctx, []string{"x", "y"}); return err },
		"Held":          func() error { _, err := a.Held(ctx); return err },
		"Holder":        func() error { _, err := a.Holder(ctx, "k"); return err },
		"ForceRelease":  func() error { return a.ForceRelease(ctx, "k", lock.Fences()[0].Token) },
		"SetPermits":    func() error { return a.SetPermits(ctx, "s", 2) },
		"Sweep":         func() error { _, err := a.Sweep(ctx); return err },
		"RunSweeper":    func() error { return a.RunSweeper(ctx, time.Second) },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, dblock.ErrClosed) {
			t.Errorf("%s after Close: %v, want ErrClosed", name, err)
		}
	}
	suite.Release(t, lock)
}

// anEndedContextSendsNothing: the error is that of the context, never ErrOutcomeUnknown.
func anEndedContextSendsNothing(t *testing.T, p Place) {
	l := p.process(t, LeaseOptions{})
	suite.Release(t, suite.Acquire(t, l, "k"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, held := l.Held(ctx)
	_, holder := l.Holder(ctx, "k")
	_, sweep := l.Sweep(ctx)
	for name, err := range map[string]error{
		"Held": held, "Holder": holder, "ForceRelease": l.ForceRelease(ctx, "k", 1), "SetPermits": l.SetPermits(ctx, "s", 2), "Sweep": sweep,
	} {
		if !errors.Is(err, context.Canceled) || errors.Is(err, dblock.ErrOutcomeUnknown) {
			t.Errorf("%s: %v, want the context's error", name, err)
		}
	}
}
