package optimistic

import (
	"time"

	"github.com/dblock-go/dblock/optimistic/internal/attempt"
)

// Option changes how often Do and Update try, and what is called meanwhile. Make one with Attempts,
// Backoff, OnConflict or RetryIf, or with EscalateAfter or LockRowAfter of a driver.
type Option interface{ attempt.Option }

// Attempts bounds how often an update is tried: 1 to 1,000. Default: 10.
func Attempts(n int) Option { return attempt.Opt(func(p *attempt.Plan) { p.Attempts = n }) }

// Backoff bounds the pauses between attempts. Each is of a random length, evenly between nothing
// and a bound (full jitter); the bound is first after the first attempt, then twice as long each
// time, up to most, which is at most a minute. Zero for both: no pauses. Default: 2 ms and 100 ms.
func Backoff(first, most time.Duration) Option {
	return attempt.Opt(func(p *attempt.Plan) { p.First, p.Max = first, most })
}

// OnConflict has f called after each attempt that failed with an error that is tried again, the
// last attempt included: with the error, and the attempt, from 1. f runs before the pause, and
// delays it. A panic in f is ignored. Default: nothing is called.
func OnConflict(f func(err error, attempt int)) Option {
	return attempt.Opt(func(p *attempt.Plan) { p.OnConflict = f })
}

// RetryIf has errors tried again for which f returns true. f is not called for an error that may
// mean a write (dblock.ErrOutcomeUnknown), nor for a lock that is lost, nor for a context's end. If
// it is given more than once, one of them is enough. A panic counts as false. Default: conflicts
// alone.
//
// A wait for a lock that took too long is the caller's bound and so is not tried again. With
// RetryIf(mysqllock.IsLockTimeout) it is.
func RetryIf(f func(error) bool) Option {
	return attempt.Opt(func(p *attempt.Plan) { p.RetryIf = append(p.RetryIf, f) })
}
