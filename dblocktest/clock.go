package dblocktest

import (
	"slices"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
)

// Clock is a clock that stands still until Advance moves it. Everything that depends on time
// follows it: heartbeats, the ends of locks, polls, sweeps. Only pauses of less than 100 ms,
// between two tries of one call, pass by the machine's clock, so that no call hangs in one while
// the clock stands still. It is safe for concurrent use.
type Clock struct {
	advancing sync.Mutex // one Advance at a time

	mu     sync.Mutex
	now    time.Time
	timers []*timer // by time, and those of one moment as they were arranged
}

var _ clock.Clock = (*Clock)(nil)

// NewClock makes a Clock that shows start.
func NewClock(start time.Time) *Clock { return &Clock{now: start.Round(0)} }

// Now is what the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock by d (0 if d is negative) and runs everything that becomes due on the
// way. It runs each on the caller's goroutine, one after the other, in order of time, while the
// clock shows its moment. What is due at one moment runs in the order in which it was scheduled.
// What is scheduled meanwhile runs as well, if it becomes due. When Advance returns, every
// heartbeat that was due has been sent and answered. Every lock whose time was up is lost: its
// context is done, and so are contexts that were derived from it.
//
// Advance wakes goroutines that wait, and does not wait for them. A call of Acquire for a key that
// came free returns soon after, as does one that is due to try again. The context that dblock.Do or
// Lock.Bind gives ends soon after the lock's. Observer.Lost and HeartbeatLate are called soon after
// the event. Wait for these as for any goroutine's work.
func (c *Clock) Advance(d time.Duration) {
	c.advancing.Lock()
	defer c.advancing.Unlock()
	until := c.Now().Add(max(0, d))
	for {
		f := c.next(until)
		if f == nil {
			return
		}
		f()
	}
}

// next moves the clock to the first call that is due, and returns it; to until if none is.
func (c *Clock) next(until time.Time) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.timers) == 0 || c.timers[0].at.After(until) {
		c.now = until
		return nil
	}
	t := c.timers[0]
	c.timers = c.timers[1:]
	c.now = t.at
	return t.f
}

// AfterFunc has f called once the clock has been moved by d: by Advance, on its goroutine. If d is
// not positive it is called at once, on a goroutine of its own. Stop prevents the call; false if it
// was made, or stopped before.
func (c *Clock) AfterFunc(d time.Duration, f func()) interface{ Stop() bool } {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &timer{c: c, at: c.now.Add(d), f: f}
	if d <= 0 {
		go f()
		return t
	}
	after, _ := slices.BinarySearchFunc(c.timers, t, func(there, t *timer) int {
		if there.at.After(t.at) {
			return 1
		}
		return -1
	})
	c.timers = slices.Insert(c.timers, after, t)
	return t
}

// timer is a call that was arranged.
type timer struct {
	c  *Clock
	at time.Time
	f  func()
}

// Stop prevents the call.
func (t *timer) Stop() bool {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	i := slices.Index(t.c.timers, t)
	if i < 0 {
		return false
	}
	t.c.timers = slices.Delete(t.c.timers, i, i+1)
	return true
}
