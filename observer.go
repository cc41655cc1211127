package dblock

import (
	"log/slog"
	"time"

	"github.com/dblock-go/dblock/internal/callback"
)

// Observer has functions that a Locker calls on events, for metrics and traces. Each may be nil. A
// function is called after the event has taken effect: a lost lock has ended before Lost is called.
// Acquired, NotAcquired and Released are called before the caller's call returns, and must not
// block. Lost and HeartbeatLate are called at any time, each on a goroutine of its own: one that
// blocks delays nothing. If a function panics or calls runtime.Goexit, that is written to the Log
// of the options.
type Observer struct {
	// Acquired: a lock was acquired after a wait.
	Acquired func(key string, waited time.Duration)

	// NotAcquired: a call ended without a lock after a wait; err is what it returned.
	NotAcquired func(key string, waited time.Duration, err error)

	// Released: a lock was released after it was held for a time.
	Released func(key string, held time.Duration)

	// Lost: a lock was lost after it was held for a time.
	Lost func(key string, held time.Duration, why Reason)

	// HeartbeatLate: a heartbeat was not confirmed at the first attempt. The process may trust its
	// locks for the remaining time; with 0 left no heartbeat was answered in time.
	HeartbeatLate func(remaining time.Duration, err error)
}

// guarded is documented as root.GuardObserver.
func (o Observer) guarded(log *slog.Logger) Observer {
	o.Acquired = callback.Func2(log, o.Acquired)
	o.NotAcquired = callback.Func3(log, o.NotAcquired)
	o.Released = callback.Func2(log, o.Released)
	o.Lost = callback.Async3(log, o.Lost)
	o.HeartbeatLate = callback.Async2(log, o.HeartbeatLate)
	return o
}
