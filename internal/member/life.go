package member

import (
	"context"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/callback"
	"github.com/dblock-go/dblock/internal/clock"
)

// Incarnation is one membership, from Join until it is lost or left.
type Incarnation struct {
	ID ID
	m  *Member

	mu          sync.Mutex
	trusted     time.Time // what this process may believe until
	beat        int64     // the last one that was confirmed
	failing     int       // heartbeats since then
	ended       bool
	why         dblock.Reason
	next        clock.Timer // the next heartbeat
	end         clock.Timer // when trust ends
	onEnd       map[*func(dblock.Reason) (tell func())]struct{}
	onHeartbeat []func(context.Context, int64) bool
	recheck     recheck
}

// Heartbeat is the number of the last heartbeat that was confirmed.
func (l *Incarnation) Heartbeat() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.beat
}

// TrustedUntil is until when what this life holds may be believed.
func (l *Incarnation) TrustedUntil() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trusted
}

// Alive tells whether this life may be trusted now; what it finds ended, it ends.
func (l *Incarnation) Alive() bool {
	alive, tell := l.judge()
	if tell != nil {
		go tell() // the caller may keep or end other locks
	}
	return alive
}

// expire is Alive for the life's own goroutines: they also call the host's functions.
func (l *Incarnation) expire() bool {
	alive, tell := l.judge()
	if tell != nil {
		tell()
	}
	return alive
}

// judge ends a life whose time is up. For what tell is see finish; nil: the life had ended before, or is alive.
func (l *Incarnation) judge() (alive bool, tell func()) {
	l.mu.Lock()
	late := !l.ended && clock.Past(l.m.o.Clock.Now(), l.trusted)
	alive = !l.ended && !late
	l.mu.Unlock()
	if late {
		tell = l.finish(dblock.ReasonExpired)
	}
	return alive, tell
}

// Ended tells whether this life has ended, and why; like Alive it ends one whose time is up.
func (l *Incarnation) Ended() (why dblock.Reason, over bool) {
	if l.Alive() {
		return "", false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.why, true
}

// Lost tells whether this life may not be trusted any more. Unlike Alive it ends nothing.
func (l *Incarnation) Lost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended || clock.Past(l.m.o.Clock.Now(), l.trusted)
}

// OnEnd has f called when this life ends, at once if it has ended, unless forget is called first. f ends what hangs on
// the life, and calls nothing of the host's: tell does that, once all has ended. A nil tell has nothing to say.
func (l *Incarnation) OnEnd(f func(dblock.Reason) (tell func())) (forget func()) {
	l.mu.Lock()
	if l.ended {
		why := l.why
		l.mu.Unlock()
		if tell := f(why); tell != nil {
			go tell()
		}
		return func() {}
	}
	l.onEnd[&f] = struct{}{}
	l.mu.Unlock()
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.onEnd, &f)
	}
}

// OnHeartbeat has settle called after each heartbeat that is confirmed, with its number, until it returns
// true. It ends with the life, as what the life left behind ends with its row.
func (l *Incarnation) OnHeartbeat(settle func(ctx context.Context, beat int64) (settled bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.onHeartbeat = append(l.onHeartbeat, settle)
	}
}

// Suspect is for whoever was told that the member's row is gone, or has beaten on, or who is in doubt: it beats at
// once, to find out.
func (l *Incarnation) Suspect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended && l.next != nil && l.next.Stop() {
		l.next = l.m.o.Clock.AfterFunc(0, l.heartbeat)
	}
}

// begin starts the heart of a life whose Join was sent at the given time.
func (l *Incarnation) begin(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trust(sent)
	l.next = l.m.o.Clock.AfterFunc(l.m.tick(), l.heartbeat)
	l.recheck.begin(l.m)
}

// trust notes what a heartbeat that was sent at the given time is worth; l.mu is held.
func (l *Incarnation) trust(sent time.Time) {
	l.trusted = sent.Add(l.m.o.TTL - l.m.o.Margin)
	if l.end != nil {
		l.end.Stop()
	}
	l.end = l.m.o.Clock.AfterFunc(l.trusted.Sub(l.m.o.Clock.Now()), func() { l.expire() })
}

// longestBeat is for how long an answer is waited for, however long the TTL: the next heartbeat takes another connection.
const longestBeat = 10 * time.Second

// heartbeat is one beat and, when it was confirmed, what is in doubt.
func (l *Incarnation) heartbeat() {
	if !l.expire() {
		return
	}
	sent := l.m.o.Clock.Now()
	ctx, cancel := context.WithTimeout(context.Background(), min(l.m.o.TTL/2, longestBeat))
	defer cancel()
	beat, alive, err := l.m.driver.Heartbeat(ctx, l.ID, l.m.o.TTL)
	if err == nil && !alive {
		l.finish(dblock.ReasonEvicted)()
		return
	}
	l.note(sent, beat, err)
	if err == nil {
		l.m.forEachListener(func(of *Listener) {
			if of.Confirmed != nil {
				of.Confirmed()
			}
		})
		l.settle(ctx, beat)
		l.runRecheck()
	}
}

// note takes over how a heartbeat ended, and arranges the next: a third of the TTL after a good one,
// soon after a failed one, and several times before trust ends. An answer that is read after that, as
// after a pause of the process, extends nothing: others may have seen that the life is lost.
func (l *Incarnation) note(sent time.Time, beat int64, err error) {
	l.mu.Lock()
	if l.ended || clock.Past(l.m.o.Clock.Now(), l.trusted) {
		l.mu.Unlock()
		l.expire()
		return
	}
	pause := l.m.tick()
	remaining := l.trusted.Sub(l.m.o.Clock.Now())
	if err == nil {
		l.recheck.note(l.m, l.failing > 0 || beat <= l.beat)
		l.failing = 0
		l.beat = beat
		l.trust(sent)
	} else {
		l.failing++
		pause = min(pause, 20*time.Millisecond<<min(l.failing, 6), max(20*time.Millisecond, remaining/4))
	}
	l.next = l.m.o.Clock.AfterFunc(pause, l.heartbeat)
	l.mu.Unlock()
	if err != nil {
		l.m.forEachListener(func(of *Listener) {
			if of.Observer.HeartbeatLate != nil {
				callback.Safely(of.Log, func() { of.Observer.HeartbeatLate(remaining, err) })
			}
		})
		l.m.Warn("dblock: a heartbeat was not confirmed", "member", l.ID.String(), "remaining", remaining, "error", err)
	}
}

// settle asks after what is in doubt.
func (l *Incarnation) settle(ctx context.Context, beat int64) {
	l.mu.Lock()
	onHeartbeat := l.onHeartbeat
	l.onHeartbeat = nil
	l.mu.Unlock()
	var left []func(context.Context, int64) bool
	for _, settle := range onHeartbeat {
		if !settle(ctx, beat) {
			left = append(left, settle)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onHeartbeat = append(left, l.onHeartbeat...)
}

// finish ends the life, once, and all that hangs on it. The host's functions come after that, with tell: an Observer or a
// Log that blocks must not keep a lock alive.
func (l *Incarnation) finish(why dblock.Reason) (tell func()) {
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		return func() {}
	}
	l.ended, l.why = true, why
	for _, t := range []clock.Timer{l.next, l.end} {
		if t != nil {
			t.Stop()
		}
	}
	callbacks := l.onEnd
	l.onEnd, l.onHeartbeat = nil, nil
	l.mu.Unlock()
	l.m.forget(l)
	var observes []func()
	for f := range callbacks {
		if tell := (*f)(why); tell != nil {
			observes = append(observes, tell)
		}
	}
	return func() {
		for _, tell := range observes {
			tell()
		}
		if why != dblock.ReasonClosed {
			l.m.Warn("dblock: the member is lost, and all that it held", "member", l.ID.String(), "reason", string(why))
		}
	}
}
