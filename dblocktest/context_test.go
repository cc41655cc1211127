package dblocktest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
)

// TestTheCauseOfAContextIsNotTheCallsError: the context of each call has ended because another call
// failed, whose outcome is unknown. This one sent nothing, and its error matches the context's
// alone.
func TestTheCauseOfAContextIsNotTheCallsError(t *testing.T) {
	t.Parallel()
	s := NewServer(nil)
	l, err := s.NewLeaseLocker(LeaseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close(context.Background()) }()
	lock := acquire(t, l)
	defer func() { _ = lock.Release(context.Background()) }()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(fmt.Errorf("another call: %w", dblock.ErrOutcomeUnknown))
	for what, call := range map[string]func() error{
		"Acquire":       func() error { _, err := l.Acquire(ctx, "k"); return err },
		"TryAcquire":    func() error { _, err := l.TryAcquire(ctx, "k"); return err },
		"AcquireAll":    func() error { _, err := l.AcquireAll(ctx, []string{"k", "l"}); return err },
		"TryAcquireAll": func() error { _, err := l.TryAcquireAll(ctx, []string{"k", "l"}); return err },
		"Held":          func() error { _, err := l.Held(ctx); return err },
		"Holder":        func() error { _, err := l.Holder(ctx, "k"); return err },
		"ForceRelease":  func() error { return l.ForceRelease(ctx, "k", 1) },
		"SetPermits":    func() error { return l.SetPermits(ctx, "p", 3) },
		"Sweep":         func() error { _, err := l.Sweep(ctx); return err },
		"RunSweeper":    func() error { return l.RunSweeper(ctx, time.Hour) },
		"ExpireIn":      func() error { return lock.ExpireIn(ctx, time.Second) },
	} {
		if err := call(); !errors.Is(err, context.Canceled) || errors.Is(err, dblock.ErrOutcomeUnknown) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
