package dblock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/root"
)

// idleHold is a Hold of nothing.
type idleHold struct{}

func (idleHold) Fences() []dblock.Fence                        { return nil }
func (idleHold) ValidUntil() time.Time                         { return time.Time{} }
func (idleHold) ExpireIn(context.Context, time.Duration) error { return nil }
func (idleHold) Check()                                        {}
func (idleHold) Release(context.Context, bool) error           { return nil }

// TestContextAskedForLate: a lock's context ends with it, whether it was asked for before that or
// after.
func TestContextAskedForLate(t *testing.T) {
	t.Parallel()
	for name, early := range map[string]bool{"before": true, "after": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			acquirer, cancel := context.WithCancel(context.WithValue(t.Context(), t, "kept"))
			cancel()
			lost, lose := root.NewLock(acquirer, t, root.Request{Key: "k"}, idleHold{})
			released, _ := root.NewLock(acquirer, t, root.Request{Key: "k"}, idleHold{})
			if early && (lost.Context().Err() != nil || released.Context().Err() != nil) {
				t.Error("a lock's context has ended with its acquirer's")
			}
			lose(dblock.ReasonStolen)
			if err := released.Release(t.Context()); err != nil {
				t.Error(err)
			}
			var why *dblock.LostError
			if err := lost.Release(t.Context()); !errors.As(err, &why) || why.Reason != dblock.ReasonStolen {
				t.Errorf("the release of a lost lock says %v", err)
			}
			if ctx := lost.Context(); !errors.Is(ctx.Err(), context.Canceled) || !errors.As(context.Cause(ctx), &why) || ctx.Value(t) != "kept" {
				t.Errorf("lost: %v, %v", ctx.Err(), context.Cause(ctx))
			}
			if ctx := released.Context(); ctx.Err() == nil || errors.Is(context.Cause(ctx), dblock.ErrLost) {
				t.Errorf("released: %v, %v", ctx.Err(), context.Cause(ctx))
			}
			if lock, ok := dblock.LockOf(lost.Context()); !ok || lock != lost {
				t.Errorf("a lock's context belongs to %v", lock)
			}
		})
	}
}

// TestRunUnderSaysWhatWasWritten loses a lock while something fails under it. ErrLost says that
// nothing was written: an error that says otherwise must not match it, and names the loss.
func TestRunUnderSaysWhatWasWritten(t *testing.T) {
	t.Parallel()
	for failed, lost := range map[error]bool{
		dblock.ErrOutcomeUnknown: false, dblock.ErrTxEnded: false, dblock.ErrConflict: true, errors.New("refused"): true,
	} {
		lock, lose := root.NewLock(t.Context(), t, root.Request{Key: "k"}, idleHold{})
		err := root.RunUnder(t.Context(), lock, func(context.Context) error {
			lose(dblock.ReasonTimeUp)
			return fmt.Errorf("the commit: %w", failed)
		})
		if errors.Is(err, dblock.ErrLost) != lost || !errors.Is(err, failed) || !strings.Contains(err.Error(), string(dblock.ReasonTimeUp)) {
			t.Errorf("%v: got %v, want lost: %t", failed, err, lost)
		}
	}
}
