package mysqllock

import (
	"context"
	"sync"
	"time"
)

// serverClock is what is known of the server's clock, so that a statement can be told when it comes too late.
// Only that hangs on it, so it need not be exact.
type serverClock struct {
	ask func(context.Context) (us int64, lockWait time.Duration, err error)

	mu       sync.Mutex
	us       int64     // what the server said
	at       time.Time // when it was asked; zero: it is to be asked
	lockWait time.Duration
}

// asked is after how long the server is asked again, as its clock may have been set.
const asked = time.Minute

// latest is the moment of the server's clock, in microseconds since 1970, at which the context's deadline comes.
func (c *serverClock) latest(ctx context.Context) (us int64, err error) {
	c.mu.Lock()
	us, at := c.us, c.at
	c.mu.Unlock()
	if now := time.Now(); now.Sub(at) > asked {
		at = now
		var lockWait time.Duration
		if us, lockWait, err = c.ask(ctx); err != nil {
			return 0, err
		}
		c.mu.Lock()
		c.us, c.at, c.lockWait = us, at, lockWait
		c.mu.Unlock()
	}
	left := longestBound
	if deadline, ok := ctx.Deadline(); ok {
		left = time.Until(deadline)
	}
	return us + (time.Since(at) + left).Microseconds(), nil
}

// longestBound is how long a statement may be under way whose context has no end.
const longestBound = 10 * time.Second

// doubt has the server asked again before the next use.
func (c *serverClock) doubt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = time.Time{}
}

// wait is how long a statement may wait for a lock at the server.
func (c *serverClock) wait() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lockWait
}
