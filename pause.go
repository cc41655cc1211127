package dblock

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/ctxerr"
	"github.com/dblock-go/dblock/internal/pace"
)

// timed is a Locker whose time is not the machine's, such as dblocktest's: what is built on it goes
// by the same clock.
type timed interface{ Clock() clock.Clock }

func clockOf(l Locker) clock.Clock {
	if t, ok := l.(timed); ok {
		return t.Clock()
	}
	return clock.Real{}
}

// brief is what a pause is shorter than that only lets others finish: a test that stops the clock
// must not stop that.
const brief = 100 * time.Millisecond

// sleep waits for d while ctx lives; its error is the context's cause.
func sleep(ctx context.Context, c clock.Clock, d time.Duration) error {
	if d < brief {
		c = clock.Real{}
	}
	due := make(chan struct{})
	timer := c.AfterFunc(d, func() { close(due) })
	defer timer.Stop()
	select {
	case <-due:
		return nil
	case <-ctx.Done():
		return ctxerr.Of(ctx)
	}
}

// backoff is pauses that grow twofold from one try to the next.
type backoff struct {
	least, max time.Duration
	tries      int
}

func (b *backoff) next() time.Duration {
	d := min(b.least<<min(b.tries, 20), b.max)
	b.tries++
	return pace.Jitter(d)
}

// temporary reports that the same call may well succeed later.
func temporary(err error) bool {
	for _, is := range []error{ErrUnavailable, ErrBusy, ErrConflict, ErrOutcomeUnknown, ErrOverloaded, ErrNotAcquired} {
		if errors.Is(err, is) {
			return true
		}
	}
	return false
}
