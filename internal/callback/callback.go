// Package callback calls functions of the host. A panic of theirs ends neither the process nor what called them: an
// observer that panics after a lock was acquired would leave the lock without an owner.
package callback

import (
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/dblock-go/dblock"
)

// Safely calls f. It writes a panic to log, which may be nil.
func Safely(log *slog.Logger, f func()) {
	defer func() {
		p := recover()
		if p == nil || log == nil {
			return
		}
		defer func() { _ = recover() }() // the log's own handler is the host's, too
		log.Error("dblock: a function of the host panicked", "panic", p, "stack", string(debug.Stack()))
	}()
	f()
}

// Observer returns an Observer whose functions call those of o safely. What is nil stays nil.
func Observer(o dblock.Observer, log *slog.Logger) dblock.Observer {
	if f := o.Acquired; f != nil {
		o.Acquired = func(key string, waited time.Duration) { Safely(log, func() { f(key, waited) }) }
	}
	if f := o.NotAcquired; f != nil {
		o.NotAcquired = func(key string, waited time.Duration, err error) { Safely(log, func() { f(key, waited, err) }) }
	}
	if f := o.Released; f != nil {
		o.Released = func(key string, held time.Duration) { Safely(log, func() { f(key, held) }) }
	}
	if f := o.Lost; f != nil {
		o.Lost = func(key string, held time.Duration, why dblock.Reason) { Safely(log, func() { f(key, held, why) }) }
	}
	if f := o.HeartbeatLate; f != nil {
		o.HeartbeatLate = func(remaining time.Duration, err error) { Safely(log, func() { f(remaining, err) }) }
	}
	return o
}
