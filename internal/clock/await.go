package clock

import (
	"context"
	"fmt"
	"time"
)

// Grace is how long a Close waits, after its context has ended, for what ends by itself.
const Grace = time.Second

// Await waits until done is closed, while ctx lives and for grace after its end. What has ended
// counts, however long ago ctx ended. The error says what goes on, and is the context's.
func Await(ctx context.Context, done <-chan struct{}, grace time.Duration, goesOn string) error {
	select {
	case <-done:
		return nil
	default:
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
	}
	select {
	case <-done: // at the same moment
		return nil
	default:
		return fmt.Errorf("dblock: %s: %w", goesOn, context.Cause(ctx))
	}
}

// After returns a channel that is closed when wait has returned.
func After(wait func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		wait()
	}()
	return done
}
