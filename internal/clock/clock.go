// Package clock is time as the state machines here see it, so that a test can be the clock.
package clock

import (
	"math/rand/v2"
	"time"
)

// Clock has the time and timers.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f on a goroutine of its own once d has passed.
	AfterFunc(d time.Duration, f func()) Timer
}

// Timer is a call that was arranged. Stop prevents it; false if it was made, or stopped before.
// It has no name of its own, so that a clock of another package's need not know this one.
type Timer = interface{ Stop() bool }

// Real is the clock of the machine.
type Real struct{}

// Now is time.Now.
func (Real) Now() time.Time { return time.Now() }

// AfterFunc is time.AfterFunc.
func (Real) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }

// Draw returns a random duration from 0 to below n. A clock with a method of that name draws it, so
// that a test can repeat what it drew.
func Draw(c Clock, n time.Duration) time.Duration {
	if d, ok := c.(interface {
		Draw(n time.Duration) time.Duration
	}); ok {
		return d.Draw(n)
	}
	return rand.N(n)
}

// Past reports whether until has come, by the monotonic clock or by the wall clock, whichever is
// first: the monotonic one stops while a machine sleeps.
func Past(now, until time.Time) bool {
	return !now.Before(until) || !now.Round(0).Before(until.Round(0))
}
