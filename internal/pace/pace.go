// Package pace says when a process asks again that receives no notifications.
package pace

import (
	"sync"
	"time"
)

// Pace bounds how often a process polls: 100 times a second over all keys, and what it has not used
// of the last tenth of a second it may use at once. Keys that are due at about the same time share
// a poll, and so a statement.
type Pace struct {
	mu      sync.Mutex
	planned time.Time // the last poll that was granted
	next    time.Time // when it would be due, did they come evenly
}

const (
	every = 10 * time.Millisecond
	ahead = 10 * every
)

// Plan returns when a poll that is due at some time may be.
func (p *Pace) Plan(now, due time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.planned.After(now) && !p.planned.Before(due) {
		return p.planned
	}
	if earliest := p.next.Add(-ahead); due.Before(earliest) {
		due = earliest
	}
	if p.next.Before(due) {
		p.next = due
	}
	p.planned, p.next = due, p.next.Add(every)
	return due
}

// soonest is the shortest time between two polls for a key.
const soonest = 5 * time.Millisecond

// Interval is how long to wait for the next poll of a key that has been waited for so long: a
// sixteenth of that, so that short waits end soon and long ones cost little.
func Interval(waited, longest time.Duration) time.Duration {
	return min(max(waited/16, soonest), longest)
}
