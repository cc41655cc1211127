package dblock

import (
	"log/slog"
	"time"

	"github.com/dblock-go/dblock/internal/callback"
)

// Observer is told what becomes of locks, so that metrics and traces can hang on it. Each function
// may be nil. It is called once what it tells has taken effect: a lock that is lost has ended before Lost is called.
// Acquired, NotAcquired and Released are called before the caller's call returns, and must not block. Lost and HeartbeatLate
// may be called at any time. One that blocks delays only other calls of the host's functions.
// A panic, or a call of runtime.Goexit, is written to the Log of the options, and ends nothing.
type Observer struct {
	// Acquired: a lock was acquired, after so long.
	Acquired func(key string, waited time.Duration)

	// NotAcquired: a call ended without a lock, after so long; err is what it returned.
	NotAcquired func(key string, waited time.Duration, err error)

	// Released: a lock was released after it was held for so long.
	Released func(key string, held time.Duration)

	// Lost: a lock was lost after it was held for so long.
	Lost func(key string, held time.Duration, why Reason)

	// HeartbeatLate: a heartbeat was not confirmed at the first attempt; remaining is for how long
	// the process may still trust its locks. err is what the database or the driver said.
	HeartbeatLate func(remaining time.Duration, err error)
}

// guarded is documented as root.GuardObserver.
func (o Observer) guarded(log *slog.Logger) Observer {
	o.Acquired = callback.Func2(log, o.Acquired)
	o.NotAcquired = callback.Func3(log, o.NotAcquired)
	o.Released = callback.Func2(log, o.Released)
	o.Lost = callback.Func3(log, o.Lost)
	o.HeartbeatLate = callback.Func2(log, o.HeartbeatLate)
	return o
}
