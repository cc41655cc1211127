package dblock

import "time"

// Observer is told what becomes of locks, so that metrics and traces can hang on it. Each function
// may be nil, is called on the goroutine on which it happens, and must not block. A panic is written to the Log of the
// options, and ends nothing.
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
