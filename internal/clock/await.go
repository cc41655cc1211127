package clock

import (
	"context"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/ctxerr"
)

// grace is how long a Close waits, after its context has ended, for what ends by itself.
const grace = time.Second

// Late returns a context that ends a second after ctx, with the same cause.
func Late(ctx context.Context) (late context.Context, stop func()) {
	late, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, func() {
		time.AfterFunc(grace, func() { cancel(context.Cause(ctx)) })
	})
	return late, func() {
		unhook()
		cancel(context.Canceled)
	}
}

// Await waits until done is closed, while ctx lives. If done is closed it returns nil, however long
// ago ctx ended. Else the error says what goes on, and wraps that of the context.
func Await(ctx context.Context, done <-chan struct{}, goesOn string) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-done:
		return nil
	default:
		return fmt.Errorf("dblock: %s: %w", goesOn, ctxerr.Of(ctx))
	}
}

// Progress waits until done is closed. It returns false if left, which says how much is left, has
// not become less for d.
func Progress(done <-chan struct{}, d time.Duration, left func() int) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for before := left(); ; {
		select {
		case <-done:
			return true
		case <-timer.C:
		}
		now := left()
		if now >= before {
			return false
		}
		before = now
		timer.Reset(d)
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
