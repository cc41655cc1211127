package queue

import (
	"context"
	"sync"
	"time"
)

// jobContext is the context of a handler. What a context with a time-out costs is its timer, and
// its place with the context above it: that is made on request, which a handler that is
// done in no time does not.
type jobContext struct {
	above    context.Context
	deadline time.Time // zero: none

	mu    sync.Mutex
	made  context.Context // nil: not yet
	stop  context.CancelCauseFunc
	free  context.CancelFunc
	ended bool
	why   error // of its end before it was made
}

var _ context.Context = (*jobContext)(nil)

// Deadline is when the job's time is up.
func (c *jobContext) Deadline() (time.Time, bool) { return c.deadline, !c.deadline.IsZero() }

// Done, Err and Value are those of the context that is made now.
func (c *jobContext) Done() <-chan struct{} { return c.real().Done() }

func (c *jobContext) Err() error { return c.real().Err() }

// Value looks at the values above; package context itself asks here for what it needs to end
// contexts below.
func (c *jobContext) Value(key any) any { return c.real().Value(key) }

func (c *jobContext) real() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made != nil {
		return c.made
	}
	ctx, stop := context.WithCancelCause(c.above)
	c.made, c.stop, c.free = ctx, stop, func() {}
	if c.ended { // before the time is looked at
		stop(c.why)
	}
	if !c.deadline.IsZero() {
		c.made, c.free = context.WithDeadlineCause(ctx, c.deadline, ErrTimeout)
	}
	return c.made
}

// end ends it, for the reason that is given first.
func (c *jobContext) end(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.ended, c.why = true, why
	}
	if c.made != nil {
		c.stop(why)
		c.free()
	}
}

// timedOut reports that the job's time was up, and that nothing else had ended it before.
func (c *jobContext) timedOut() bool {
	if c.deadline.IsZero() || time.Now().Before(c.deadline) {
		return false
	}
	return context.Cause(c) == ErrTimeout
}
