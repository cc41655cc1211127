package locksim

import (
	"strconv"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
)

// drifting is a process's clock. It is faster or slower than the server's, and its timers do not
// fire while the process stands still.
type drifting struct {
	p    *process
	rate float64 // of its seconds to those of the server
}

func (c *drifting) Now() time.Time {
	return time.Now().Add(time.Duration(float64(c.p.w.now()) * (c.rate - 1)))
}

// moment is when the process's clock shows t.
func (c *drifting) moment(t time.Time) time.Duration {
	return time.Duration(float64(t.Sub(c.p.w.began)) / c.rate)
}

// Draw is of the seed.
func (c *drifting) Draw(n time.Duration) time.Duration {
	return c.p.w.dice(c.p.name+" draws").between(0, n)
}

func (c *drifting) AfterFunc(d time.Duration, f func()) clock.Timer {
	t, due := &timer{}, strconv.FormatInt(int64(c.p.w.now()+d), 36)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer = time.AfterFunc(time.Duration(float64(d)/c.rate)+1, func() { // never before the clock shows the time
		c.p.gate(due)
		if t.Stop() {
			f()
		}
	})
	return t
}

// timer can be stopped while its process stands still.
type timer struct {
	timer *time.Timer

	mu   sync.Mutex
	over bool
}

func (t *timer) Stop() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	first := !t.over
	t.over = true
	t.timer.Stop()
	return first
}
